#!/usr/bin/python3
"""Writes the names and signatures of Horovod's TensorFlow and Keras API, read from a release's own source, as horovod_signatures.py
does for PyTorch's:

    horovod_tensorflow_signatures.py horovod-0.28.1.tar.gz > horovod_tensorflow_signatures.json

Nothing of the source is run. A name has its module before it, as in keras/allreduce."""

import ast
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "torch"))
from horovod_signatures import entry, reader  # noqa: E402

MODULES = {"": "horovod/tensorflow/__init__.py", "keras": "horovod/tensorflow/keras/__init__.py"}
CALLBACKS = "horovod/tensorflow/keras/callbacks.py"


def flat(body):
    """Yields statements, also those in the branches of try and if, where the source has functions for some versions only."""
    for node in body:
        if isinstance(node, (ast.Try, ast.If)):
            yield from flat([*node.body, *node.orelse])
        else:
            yield node


def table_of(read):
    found = {}
    for module, path in MODULES.items():
        prefix = f"{module}/" if module else ""
        tree = ast.parse(read(path))
        for node in flat(tree.body):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found[prefix + node.name] = entry(ast.Module([node], []), node.name)
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("horovod.tensorflow"):
                continue
            source = node.module.replace(".", "/") + ".py"
            for alias in node.names:
                if alias.name.startswith("_") or alias.name == "elastic":
                    continue
                own = None
                if node.module not in ("horovod.tensorflow", "horovod.tensorflow.keras"):
                    own = entry(ast.parse(read(source)), alias.name)
                is_function = own is not None and "function" in own and own["function"][:1] != [["*args", None]]
                found[prefix + alias.name] = own if is_function else {"value": None}
    for node in ast.parse(read(CALLBACKS)).body:
        if isinstance(node, ast.ClassDef):
            methods = entry(ast.Module([node], []), node.name)["class"]
            found[f"keras/callbacks.{node.name}"] = {"function": methods["__init__"]}
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = [f"{json.dumps(name)}: {json.dumps(own)}" for name, own in sorted(table_of(reader(sys.argv[1])).items())]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
