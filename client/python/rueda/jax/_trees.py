"""Implements what training needs of whole trees of arrays (JAX's pytrees)."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import jax
import jax.numpy as jnp

from .._core import _operations
from .._core._operations import Average
from .._core._process_sets import ProcessSet
from . import _primitives
from ._ops import common, reduction


def average_gradients(tree: Any, op: int = Average, name: Optional[str] = None, process_set: Optional[ProcessSet] = None, *,
                      prescale_factor: float = 1.0, postscale_factor: float = 1.0, wire_dtype: Optional[str] = None) -> Any:
    """Averages the leaves of a tree over all ranks, all of them in one call, as in

        loss, gradients = jax.value_and_grad(loss_of)(parameters, batch)
        updates, state = optimizer.update(rueda.jax.average_gradients(gradients), state)

    Args:
        tree: a tree of arrays, of the same structure, shapes and dtypes on all ranks. Leaves of dtype float0, which are the gradients
            of integers, stay as they are.
        op, name, process_set, prescale_factor, postscale_factor, wire_dtype: as for allreduce().

    Returns:
        A tree of the same structure.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    parameters = {**common(name, process_set), **reduction(op, prescale_factor, postscale_factor, wire_dtype)}
    return _map_together(tree, lambda leaves: list(_primitives.allreduce_p.bind(*leaves, **parameters)))


def broadcast_parameters(tree: Any, root_rank: int = 0, name: Optional[str] = None,
                         process_set: Optional[ProcessSet] = None) -> Any:
    """Gives every rank the root's leaves of a tree, as at the beginning of training.

    Args:
        tree: a tree of arrays or numbers, such as parameters or the state of an optimizer. Keys of jax.random are allowed. The structure,
            shapes and dtypes are the same on all ranks.
        root_rank, name, process_set: as for broadcast().

    Returns:
        A tree of the same structure, whose leaves are JAX's arrays.

    Raises:
        TypeError, ValueError, RuedaError: as for broadcast().
    """
    parameters = common(name, process_set)
    _operations.is_root(root_rank)
    return _map_together(tree, lambda leaves: list(_primitives.broadcast_p.bind(*leaves, **parameters, root_rank=int(root_rank))))


def _map_together(tree: Any, function: Callable[[List[Any]], List[Any]]) -> Any:
    """Returns the tree with the results of function(leaves) in place of its leaves, without those of dtype float0."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    places = [i for i, leaf in enumerate(leaves) if getattr(leaf, "dtype", None) != jax.dtypes.float0]
    if places:
        plain = [leaves[i] if _is_key(leaves[i]) else jnp.asarray(leaves[i]) for i in places]
        results = function([jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in plain])
        for i, leaf, result in zip(places, plain, results):
            leaves[i] = jax.random.wrap_key_data(result, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else result
    return jax.tree_util.tree_unflatten(structure, leaves)


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
