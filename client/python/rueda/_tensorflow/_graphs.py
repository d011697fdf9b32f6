"""Knows what graph is being made: its anchor, the names that it has used, and whether XLA will compile it."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Dict, Optional

import tensorflow as tf

from .._core import _operations
from . import _native

# A name may have 255 bytes; others are made of it, with ".sizes" or ".gradient" behind.
_MOST_NAME_BYTES = 200

_ANCHOR = "_rueda_anchor"
_NAMES = "_rueda_names"


def anchor() -> Any:
    """Returns the last input of an op of tensors, which keeps TensorFlow from evaluating the op while it optimises a graph
    (docs/decisions/0092-what-tensorflow-and-jax-carry.md). Each graph has one."""
    if tf.executing_eagerly():
        return tf.constant(0)
    graph = tf.compat.v1.get_default_graph()
    found = getattr(graph, _ANCHOR, None)
    if found is None:
        with graph.as_default(), tf.control_dependencies(None):
            found = _native.ops().rueda_anchor()
        setattr(graph, _ANCHOR, found)
    return found


def refuse_xla() -> None:
    """Raises NotImplementedError where the graph that is being made is for XLA, which has no kernels of these ops."""
    try:
        from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
    except ImportError:  # TensorFlow then says itself that there is no such kernel
        return
    if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise NotImplementedError("a function with jit_compile=True cannot have Rueda's collectives in it; use "
                                  "compile(jit_compile=False), or call them outside of that function")


def _names_of_graph() -> Dict[str, int]:
    """Returns how often each name has been taken in the graph that is being made, or in that around it: functions and branches
    within one graph may run at the same time."""
    graph = tf.compat.v1.get_default_graph()
    while hasattr(getattr(graph, "outer_graph", None), "outer_graph"):  # the outermost is the process's own, for ever
        graph = graph.outer_graph
    used: Optional[Dict[str, int]] = getattr(graph, _NAMES, None)
    if used is None:
        used = {}
        setattr(graph, _NAMES, used)
    return used


def shortened(name: str) -> str:
    """Returns a name that is not too long for the names that are made of it. The same long names give the same short ones."""
    encoded = name.encode()
    if len(encoded) <= _MOST_NAME_BYTES:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return encoded[:_MOST_NAME_BYTES - len(digest) - 1].decode("utf-8", "ignore") + "." + digest


def take_name(function: str, name: Optional[str], tensor: Any, set_id: int) -> str:
    """Returns the name under which ranks meet: the function's, a dot, and the caller's, or that of the tensor in the graph, or a
    number where there is no graph. Within a graph no name is given twice. All ranks get the same names if they make the same
    calls for the same graphs."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    if tf.executing_eagerly():
        return _operations.name_for(function, None if name is None else shortened(f"{function}.{name}"), set_id)
    chosen = shortened(f"{function}.{name if name is not None else re.sub('[^a-zA-Z0-9_/]', '_', tensor.name)}")
    used = _names_of_graph()
    count = used.get(chosen, 0)
    used[chosen] = count + 1
    if count == 0:
        return _operations.name_for(function, chosen, set_id)
    return take_name(function, f"{chosen[len(function) + 1:]}_{count}", tensor, set_id)
