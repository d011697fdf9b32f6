#!/usr/bin/python3
"""Writes the names and signatures of Horovod's PyTorch API, read from a release's own source.

    pip download horovod==0.28.1 --no-deps --no-binary :all:
    horovod_signatures.py horovod-0.28.1.tar.gz > horovod_signatures.json

SOURCE is that archive or a folder it was unpacked to. Nothing of it is run: signatures are taken from the
syntax tree. The table has what `import horovod.torch` binds, and hvd.elastic's classes, as lists of
[parameter, default as it is written, or null].
"""

import ast
import json
import os
import sys
import tarfile

PACKAGE = "horovod/torch/__init__.py"
# horovod.torch binds these names, which are not functions of the module that they come from.
METHODS = {"horovod/torch/mpi_ops.py": ("horovod/common/basics.py", "HorovodBasics")}
ELSEWHERE = {"ProcessSet": "horovod/common/process_sets.py", "add_process_set": "horovod/common/process_sets.py",
             "remove_process_set": "horovod/common/process_sets.py",
             "HorovodInternalError": "horovod/common/exceptions.py"}
ELASTIC = {"run": "horovod/torch/elastic/__init__.py", "TorchState": "horovod/torch/elastic/state.py",
           "ElasticSampler": "horovod/torch/elastic/sampler.py", "State": "horovod/common/elastic.py",
           "ObjectState": "horovod/common/elastic.py"}


def reader(source):
    """Returns a function from a path inside the archive to its text."""
    if os.path.isdir(source):
        def read(path):
            with open(os.path.join(source, path), encoding="utf-8") as file:
                return file.read()
        return read
    archive = tarfile.open(source)
    names = {name.partition("/")[2]: name for name in archive.getnames()}
    return lambda path: archive.extractfile(names[path]).read().decode()


def signature(function, is_method=False):
    arguments = function.args
    names = [argument.arg for argument in arguments.posonlyargs + arguments.args]
    defaults = [None] * (len(names) - len(arguments.defaults)) + [ast.unparse(one) for one in arguments.defaults]
    table = [list(pair) for pair in zip(names, defaults)]
    table += [[argument.arg, default and ast.unparse(default)]
              for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    table += [[f"*{arguments.vararg.arg}", None]] if arguments.vararg else []
    table += [[f"**{arguments.kwarg.arg}", None]] if arguments.kwarg else []
    is_static = any(ast.unparse(one) in ("staticmethod",) for one in function.decorator_list)
    return table[1:] if is_method and not is_static else table


def entry(tree, name):
    """Returns a function's signature, a class's public methods, or None for anything else."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return {"function": signature(node)}
        if isinstance(node, ast.ClassDef) and node.name == name:
            methods = {method.name: signature(method, is_method=True) for method in node.body
                       if isinstance(method, ast.FunctionDef)
                       and (method.name == "__init__" or not method.name.startswith("_"))}
            return {"class": methods}
    return None


def table_of(read):
    trees = {}

    def tree(path):
        return trees.setdefault(path, ast.parse(read(path)))

    found = {}
    for node in ast.walk(tree(PACKAGE)):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("horovod.torch"):
            continue
        path = node.module.replace(".", "/") + ".py"
        for alias in node.names:
            name = alias.name
            if name == "elastic":
                continue
            own = entry(tree(ELSEWHERE.get(name, path)), name)
            takes_anything = own == {"function": [["*args", None], ["**kwargs", None]]}
            if path in METHODS and (own is None or takes_anything):
                basics, kind = METHODS[path]
                methods = entry(tree(basics), kind)["class"]
                own = {"function": methods[name]} if name in methods else None
            found[name] = own or {"value": None}
    for name, path in ELASTIC.items():
        found[f"elastic.{name}"] = entry(tree(path), name)
    optimizer = entry(tree("horovod/torch/optimizer.py"), "_DistributedOptimizer")["class"]
    del optimizer["__init__"]
    del optimizer["find_duplicates"]
    found["DistributedOptimizer()"] = {"class": optimizer}
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = [f"{json.dumps(name)}: {json.dumps(own)}" for name, own in sorted(table_of(reader(sys.argv[1])).items())]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
