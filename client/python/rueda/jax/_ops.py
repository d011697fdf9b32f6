"""Implements the collectives of one array or a list of them."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import jax.numpy as jnp

from .._core import _operations, _parts
from .._core._operations import Average, ReduceOp, require_init
from .._core._process_sets import ProcessSet, id_of
from . import _primitives
from ._primitives import Dims, even_parts


def _checked_name(name: Optional[str]) -> Optional[str]:
    return None if name is None else _operations.name_for("", name)


def reduction(op: int, prescale_factor: float, postscale_factor: float, wire_dtype: Optional[str]) -> Dict[str, Any]:
    """Returns the parameters of a reduction for _primitives, checked."""
    options = _operations.make_options(op, prescale_factor, postscale_factor, wire_dtype=wire_dtype)
    return {"op": int(options.op), "prescale": float(prescale_factor), "postscale": float(postscale_factor), "wire_dtype": wire_dtype}


def common(name: Optional[str], process_set: Optional[ProcessSet]) -> Dict[str, Any]:
    """Returns the parameters that all collectives have, checked."""
    require_init()
    return {"name": _checked_name(name), "set_id": id_of(process_set)}


def _rows(x: Any) -> Any:
    array = jnp.asarray(x)
    if array.ndim == 0:
        raise ValueError("x has no first dimension to be cut; pass x.reshape(1)")
    return array


def _dims_of_all(rows: int, first_dims: Optional[Sequence[int]], size: int, what: str) -> Dims:
    if first_dims is None:
        return (rows,) * size
    dims = tuple(int(dim) for dim in first_dims)
    if len(dims) != size or min(dims) < 0:
        raise ValueError(f"{what}={list(dims)} must be {size} numbers from 0, one for each rank")
    return dims


def allreduce(x: Any, op: int = Average, name: Optional[str] = None, process_set: Optional[ProcessSet] = None, *,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0, wire_dtype: Optional[str] = None) -> Any:
    """Reduces `x` over all ranks, each of which gets the result.

    It may be called eagerly, and within jax.jit, jax.grad, jax.vmap and what is built from them; the other collectives, too. The
    derivative of a sum is the sum of the ranks' derivatives, that of an average their average; min, max and product have none.
    Eagerly the call waits for the result. In a compiled program a call whose result is not used is left out, as JAX does with any
    function.

    Args:
        x: an array of the same shape and dtype on all ranks: float16, bfloat16, float32, float64, int8, int32, int64, uint8 or bool.
        op: rueda.jax.Sum, Average, Min, Max, Product or Adasum.
        name: the same on all ranks. If None, it is counted where the call is eager, and made of the program's name and the call's
            place in it where it is compiled.
        process_set: the ranks that take part, of which this process must be one; all ranks if None.
        prescale_factor: multiplies each contribution.
        postscale_factor: multiplies the result.
        wire_dtype: "float16" or "bfloat16" rounds float32 values where they cross the network between nodes.

    Returns:
        An array like `x`.

    Raises:
        TypeError, ValueError: an argument is wrong, or rueda.jax.init() has not been called.
        RuedaError: eagerly, if the operation failed. A compiled program raises what JAX makes of it, with the same sentence
            (rueda.jax.rueda_errors).
    """
    return _primitives.allreduce_p.bind(jnp.asarray(x), **common(name, process_set),
                                        **reduction(op, prescale_factor, postscale_factor, wire_dtype))[0]


def grouped_allreduce(xs: Sequence[Any], op: int = Average, name: Optional[str] = None, process_set: Optional[ProcessSet] = None, *,
                      prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      wire_dtype: Optional[str] = None) -> List[Any]:
    """Reduces several arrays over all ranks as one: none before all of them are ready on all ranks. In a compiled program they are
    one call, so that they do not wait for each other.

    Args:
        xs: a list of arrays as for allreduce(). They may differ in shape and dtype.
        op, name, process_set, prescale_factor, postscale_factor, wire_dtype: as for allreduce().

    Returns:
        A list of arrays like `xs`.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    if not isinstance(xs, (list, tuple)) or not xs:
        raise ValueError("xs must be a list of at least one array; rueda.jax.average_gradients takes trees")
    return list(_primitives.allreduce_p.bind(*(jnp.asarray(x) for x in xs), **common(name, process_set),
                                             **reduction(op, prescale_factor, postscale_factor, wire_dtype)))


def broadcast(x: Any, root_rank: int, name: Optional[str] = None, process_set: Optional[ProcessSet] = None) -> Any:
    """Gives every rank the root's `x`. The derivative at the root is the sum of all ranks' derivatives, and zero elsewhere.

    Args:
        x: an array of the same shape and dtype on all ranks, of any dtype whose elements are bytes.
        root_rank: the rank in the job whose values are sent.
        name, process_set: as for allreduce().

    Returns:
        An array like `x`.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    parameters = common(name, process_set)
    _operations.is_root(root_rank)
    return _primitives.broadcast_p.bind(jnp.asarray(x), **parameters, root_rank=int(root_rank))[0]


def allgather(x: Any, name: Optional[str] = None, process_set: Optional[ProcessSet] = None, *,
              first_dims: Optional[Sequence[int]] = None) -> Any:
    """Puts the arrays of all ranks one behind the other, in the order of the ranks.

    Args:
        x: an array of at least one dimension, of any dtype whose elements are bytes. Dimensions but the first are the same on all
            ranks.
        name, process_set: as for allreduce().
        first_dims: the numbers of rows of all ranks of the set, the same list on all of them. If None, a compiled program takes it that
            all ranks have as many rows as this one; eagerly the ranks tell each other.

    Returns:
        An array whose first dimension is the sum of those of all ranks.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce(). Ranks with different numbers of rows get an error that names two of
            them.
    """
    array, parameters = _rows(x), common(name, process_set)
    _place, size = _parts.place_in(parameters["set_id"])
    return _primitives.allgather_p.bind(array, **parameters, first_dims=_dims_of_all(array.shape[0], first_dims, size, "first_dims"))


def reducescatter(x: Any, op: int = Average, name: Optional[str] = None, process_set: Optional[ProcessSet] = None, *,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0, wire_dtype: Optional[str] = None) -> Any:
    """Reduces `x` over all ranks, each of which gets its part of the rows. Parts are as even as can be; the first ranks have one row
    more. There is a derivative for sums and averages.

    Args:
        x: an array as for allreduce(), of at least one dimension.
        op, name, process_set, prescale_factor, postscale_factor, wire_dtype: as for allreduce(), without Adasum.

    Returns:
        This rank's part of the reduced array.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    array, parameters = _rows(x), common(name, process_set)
    if op == ReduceOp.Adasum:
        raise ValueError("Adasum is for all-reduces alone; use Sum, Average, Min, Max or Product")
    _place, size = _parts.place_in(parameters["set_id"])
    return _primitives.reduce_scatter_p.bind(array, **parameters, **reduction(op, prescale_factor, postscale_factor, wire_dtype),
                                             first_dims=even_parts(array.shape[0], size))


def alltoall(x: Any, splits: Optional[Sequence[Sequence[int]]] = None, name: Optional[str] = None,
             process_set: Optional[ProcessSet] = None) -> Any:
    """Gives each rank its part of the rows of `x`, and puts the parts that come one behind the other, in the order of the ranks.

    Args:
        x: an array of at least one dimension, of any dtype whose elements are bytes.
        splits: splits[i][j] rows go from the i-th rank of the set to the j-th; the same list of lists on all ranks. If None, all ranks
            have as many rows as this one, and cut them into equal parts.
        name, process_set: as for allreduce().

    Returns:
        An array of the rows that have come to this rank.

    Raises:
        TypeError, ValueError, RuedaError: as for allreduce().
    """
    array, parameters = _rows(x), common(name, process_set)
    place, size = _parts.place_in(parameters["set_id"])
    flat: Dims = ()
    if splits is None:
        if array.shape[0] % size != 0:
            raise ValueError(f"x has {array.shape[0]} rows, which cannot be split equally among {size} ranks; pass splits")
    else:
        rows = [_dims_of_all(0, row, size, f"splits[{i}]") for i, row in enumerate(splits)]
        if len(rows) != size:
            raise ValueError(f"splits has {len(rows)} lists, but there are {size} ranks")
        if sum(rows[place]) != array.shape[0]:
            raise ValueError(f"splits[{place}]={list(rows[place])} must add up to the {array.shape[0]} rows of x")
        flat = tuple(dim for row in rows for dim in row)
    return _primitives.alltoall_p.bind(array, **parameters, splits=flat)
