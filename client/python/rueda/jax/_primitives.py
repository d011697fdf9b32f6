"""Defines the collectives as primitives of JAX: how they are run eagerly, compiled, differentiated and mapped over batches.

All are linear but the all-reduces by min, max and product. The derivative of a collective counts what all ranks do with its results:
the cotangent of a sum is the sum of all ranks' cotangents, that of an average their average, that of an allgather a reduce-scatter.

Parameters: `name` is the user's, or None; `set_id` librueda's number of the process set. They say nothing of ranks that may change
within a program."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Optional, Tuple

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .._core import _operations, _parts, _process_sets
from .._core._dtypes import wire_code_of
from .._core._operations import Average, Sum
from .._core._process_sets import ProcessSet
from . import _native
from ._arrays import carried, code_to_carry, code_to_reduce, host_array, jax_array
from ._names import name_in_program

Dims = Tuple[int, ...]

allreduce_p = Primitive("rueda_allreduce")  # of one array or more, as one group
allreduce_p.multiple_results = True
broadcast_p = Primitive("rueda_broadcast")  # of one array or more
broadcast_p.multiple_results = True
allgather_p = Primitive("rueda_allgather")
reduce_scatter_p = Primitive("rueda_reduce_scatter")
alltoall_p = Primitive("rueda_alltoall")


def _set_of(set_id: int) -> Optional[ProcessSet]:
    """Returns the set with this number, or None, which stands for all ranks."""
    if set_id == 0:
        return None
    return next(one for one in _process_sets.added() if one.process_set_id == set_id)


# --- Eagerly: rueda's functions for NumPy, whose errors are RuedaError.


def _run_allreduce(*arrays: Any, name: Optional[str], set_id: int, op: int, prescale: float, postscale: float,
                   wire_dtype: Optional[str]) -> List[Any]:
    values = [host_array(array) for array in arrays]
    results: Any
    if len(values) == 1:
        results = [_operations.allreduce(values[0], name, op, prescale, postscale, process_set=_set_of(set_id),
                                         wire_dtype=wire_dtype)]
    else:
        results = _operations.grouped_allreduce(values, name, op, prescale, postscale, process_set=_set_of(set_id),
                                                wire_dtype=wire_dtype)
    return [jax_array(result, array) for result, array in zip(results, arrays)]


def _run_broadcast(*arrays: Any, name: Optional[str], set_id: int, root_rank: int) -> List[Any]:
    count = len(arrays)
    handles = [_operations.broadcast_async(carried(host_array(array)), root_rank,
                                           name if name is None or count == 1 else f"{name}_{i + 1}of{count}",
                                           process_set=_set_of(set_id)) for i, array in enumerate(arrays)]
    results: List[Any] = [_operations.synchronize(handle) for handle in handles]
    return [jax_array(result, array) for result, array in zip(results, arrays)]


def _run_allgather(array: Any, *, name: Optional[str], set_id: int, first_dims: Dims) -> Any:
    del first_dims  # the ranks tell each other
    return jax_array(_parts.allgather(carried(host_array(array)), name, process_set=_set_of(set_id)), array)


def _run_reduce_scatter(array: Any, *, name: Optional[str], set_id: int, op: int, prescale: float, postscale: float,
                        wire_dtype: Optional[str], first_dims: Dims) -> Any:
    values = host_array(array)
    set_of = _set_of(set_id)
    place, size = _parts.place_in(set_id)
    if first_dims == even_parts(values.shape[0], size):
        return jax_array(_parts.reducescatter(values, name, op, prescale, postscale, process_set=set_of, wire_dtype=wire_dtype),
                         array)
    # The derivative of an allgather of uneven parts.
    whole = _operations.allreduce(values, name, op, prescale, postscale, process_set=set_of, wire_dtype=wire_dtype)
    begin = sum(first_dims[:place])
    return jax_array(whole[begin:begin + first_dims[place]], array)


def _run_alltoall(array: Any, *, name: Optional[str], set_id: int, splits: Dims) -> Any:
    values = carried(host_array(array))
    place, size = _parts.place_in(set_id)
    own = splits[place * size:(place + 1) * size] if splits else None
    result: Any = _parts.alltoall(values, own, name, process_set=_set_of(set_id))
    return jax_array(result[0] if splits else result, array)


def even_parts(rows: int, size: int) -> Dims:
    """Returns how many rows each of `size` ranks gets: as even as can be, the first ranks one more."""
    return tuple(rows // size + (1 if place < rows % size else 0) for place in range(size))


# --- Shapes.


def _shaped(shape: Any, dtype: Any) -> Any:
    return jax.core.ShapedArray(shape, dtype)


def _reduced_shapes(*arrays: Any, **_: Any) -> List[Any]:
    for array in arrays:
        code_to_reduce(array.dtype)
    return [_shaped(array.shape, array.dtype) for array in arrays]


def _broadcast_shapes(*arrays: Any, **_: Any) -> List[Any]:
    for array in arrays:
        code_to_carry(array.dtype)
    return [_shaped(array.shape, array.dtype) for array in arrays]


def _allgather_shape(array: Any, *, set_id: int, first_dims: Dims, **_: Any) -> Any:
    code_to_carry(array.dtype)
    place, _size = _parts.place_in(set_id)
    if first_dims[place] != array.shape[0]:
        raise ValueError(f"first_dims={list(first_dims)} says that this rank has {first_dims[place]} rows, but x has "
                         f"{array.shape[0]}")
    return _shaped((sum(first_dims), *array.shape[1:]), array.dtype)


def _scattered_shape(array: Any, *, set_id: int, first_dims: Dims, **_: Any) -> Any:
    code_to_reduce(array.dtype)
    place, _size = _parts.place_in(set_id)
    return _shaped((first_dims[place], *array.shape[1:]), array.dtype)


def _alltoall_shape(array: Any, *, set_id: int, splits: Dims, **_: Any) -> Any:
    code_to_carry(array.dtype)
    place, size = _parts.place_in(set_id)
    rows = sum(splits[place::size]) if splits else array.shape[0]
    return _shaped((rows, *array.shape[1:]), array.dtype)


# --- Compiled: a custom call of a handler in librueda_jax.so.

_WITHOUT_CACHE: Dict[str, Any] = ({"cacheable": False}
                                  if "cacheable" in inspect.signature(mlir.register_lowering).parameters else {})


def _require_one_device(module_context: Any) -> None:
    context = module_context.axis_context
    devices = getattr(context, "num_devices", None)
    if devices is None and hasattr(context, "mesh"):
        devices = context.mesh.size
    if devices is not None and devices > 1:
        raise NotImplementedError(f"a collective of rueda.jax is in a program for {devices} devices, each of which would make the "
                                  "call; compile it for one device of each process, and start more processes")


def _lower_to(target: str, kind: str, code_of: Callable[[Any], int],
              attributes: Callable[..., Dict[str, Any]]) -> Callable[..., Any]:
    """Returns a rule that lowers a primitive to a call of the handler `target`."""

    def rule(ctx: Any, *operands: Any, name: Optional[str], set_id: int, **parameters: Any) -> Any:
        _require_one_device(ctx.module_context)
        _native.register()
        # The side effect keeps XLA from leaving a call out, joining two or moving one out of a loop.
        call = jax.ffi.ffi_lowering(target, has_side_effect=True)
        return call(ctx, *operands, name=name_in_program(ctx.module_context, kind, name), process_set=np.int32(set_id),
                    dtypes=np.array([code_of(aval.dtype) for aval in ctx.avals_in], np.int64), **attributes(**parameters))

    return rule


def _refuse_platform(ctx: Any, *_: Any, **__: Any) -> Any:
    raise NotImplementedError(f"rueda.jax compiles for CPUs alone, and not for {'/'.join(ctx.module_context.platforms)}; place the "
                              "arrays with jax.device_put(x, jax.devices(\"cpu\")[0]), or call the collective outside of jax.jit")


def _reduction_attributes(op: int, prescale: float, postscale: float, wire_dtype: Optional[str]) -> Dict[str, Any]:
    return {"op": np.int32(op), "prescale": np.float64(prescale), "postscale": np.float64(postscale),
            "wire_dtype": np.int32(wire_code_of(wire_dtype))}


def _scatter_attributes(first_dims: Dims, **reduction: Any) -> Dict[str, Any]:
    return {**_reduction_attributes(**reduction), "first_dims": np.array(first_dims, np.int64)}


# --- Derivatives.


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero or getattr(tangent, "dtype", None) == jax.dtypes.float0


def _only_nonzero(primitive: Any, values: List[Any], parameters: Dict[str, Any]) -> List[Any]:
    """Binds a primitive of several arrays to those that are not symbolic zeros, and returns the results in their places."""
    live = [value for value in values if not _is_zero(value)]
    results = iter(primitive.bind(*live, **parameters) if live else [])
    return [value if _is_zero(value) else next(results) for value in values]


def _require_linear(op: int) -> None:
    if op not in (Sum, Average):
        raise NotImplementedError(f"a reduction by {_operations.ReduceOp(op).name} has no derivative in rueda.jax; use Sum or Average, "
                                  "or jax.lax.stop_gradient")


def _jvp_of_several(primitive: Any) -> Callable[..., Any]:
    def rule(primals: Any, tangents: Any, **parameters: Any) -> Any:
        if "op" in parameters and not all(_is_zero(tangent) for tangent in tangents):
            _require_linear(parameters["op"])
        return primitive.bind(*primals, **parameters), _only_nonzero(primitive, list(tangents), parameters)

    return rule


def _jvp_of_one(primitive: Any) -> Callable[..., Any]:
    def rule(primals: Any, tangents: Any, **parameters: Any) -> Any:
        result = primitive.bind(*primals, **parameters)
        if _is_zero(tangents[0]):
            return result, ad.Zero.from_primal_value(result)
        if "op" in parameters:
            _require_linear(parameters["op"])
        return result, primitive.bind(*tangents, **parameters)

    return rule


def _transpose_allreduce(cotangents: Any, *_: Any, **parameters: Any) -> List[Any]:
    return _only_nonzero(allreduce_p, list(cotangents), parameters)


def _transpose_broadcast(cotangents: Any, *_: Any, name: Optional[str], set_id: int, root_rank: int) -> List[Any]:
    sums = _only_nonzero(allreduce_p, list(cotangents), {"name": name, "set_id": set_id, "op": int(Sum), "prescale": 1.0,
                                                         "postscale": 1.0, "wire_dtype": None})
    is_root = _operations.is_root(root_rank)
    # The sum stays in the program of the other ranks too: all of them have to take part in it.
    return [one if _is_zero(one) else jnp.where(is_root, one, jnp.zeros_like(one)) for one in sums]


def _transpose_allgather(cotangent: Any, _operand: Any, *, name: Optional[str], set_id: int, first_dims: Dims) -> List[Any]:
    if _is_zero(cotangent):
        return [None]
    if cotangent.shape[0] != sum(first_dims):
        raise ValueError(f"the ranks gathered {cotangent.shape[0]} rows, but the derivative needs to know how many each of them had; "
                         "pass first_dims, the list of all ranks' numbers of rows")
    return [reduce_scatter_p.bind(cotangent, name=name, set_id=set_id, op=int(Sum), prescale=1.0, postscale=1.0, wire_dtype=None,
                                  first_dims=first_dims)]


def _transpose_reduce_scatter(cotangent: Any, _operand: Any, *, name: Optional[str], set_id: int, op: int, prescale: float,
                              postscale: float, wire_dtype: Optional[str], first_dims: Dims) -> List[Any]:
    if _is_zero(cotangent):
        return [None]
    gathered = allgather_p.bind(cotangent, name=name, set_id=set_id, first_dims=first_dims)
    factor = prescale * postscale / (len(first_dims) if op == Average else 1)
    return [gathered if factor == 1 else gathered * jnp.asarray(factor, gathered.dtype)]


def _transpose_alltoall(cotangent: Any, _operand: Any, *, name: Optional[str], set_id: int, splits: Dims) -> List[Any]:
    if _is_zero(cotangent):
        return [None]
    _place, size = _parts.place_in(set_id)
    back = tuple(splits[row * size + column] for column in range(size) for row in range(size)) if splits else ()
    return [alltoall_p.bind(cotangent, name=name, set_id=set_id, splits=back)]


# --- Batches: the batch is one more dimension of the same call.


def _batch_each(primitive: Any) -> Callable[..., Any]:
    def rule(arrays: Any, axes: Any, **parameters: Any) -> Any:
        return primitive.bind(*arrays, **parameters), list(axes)

    return rule


def _batch_rows(primitive: Any) -> Callable[..., Any]:
    """Makes the batch the second dimension, behind the one that is cut into parts."""

    def rule(arrays: Any, axes: Any, **parameters: Any) -> Any:
        return primitive.bind(jnp.moveaxis(arrays[0], axes[0], 1), **parameters), 1

    return rule


def _define(primitive: Any, run: Callable[..., Any], shapes: Callable[..., Any], rule: Callable[..., Any], batch: Callable[..., Any],
            jvp: Callable[..., Any], transpose: Callable[..., Any]) -> None:
    def run_checked(*arrays: Any, **parameters: Any) -> Any:
        shapes(*arrays, **parameters)
        return run(*arrays, **parameters)

    primitive.def_impl(run_checked)
    primitive.def_abstract_eval(shapes)
    mlir.register_lowering(primitive, rule, platform="cpu", **_WITHOUT_CACHE)
    mlir.register_lowering(primitive, _refuse_platform, **_WITHOUT_CACHE)
    batching.primitive_batchers[primitive] = batch
    ad.primitive_jvps[primitive] = jvp
    ad.primitive_transposes[primitive] = transpose


_define(allreduce_p, _run_allreduce, _reduced_shapes,
        _lower_to("rueda.allreduce", "allreduce", code_to_reduce, _reduction_attributes),
        _batch_each(allreduce_p), _jvp_of_several(allreduce_p), _transpose_allreduce)
_define(broadcast_p, _run_broadcast, _broadcast_shapes,
        _lower_to("rueda.broadcast", "broadcast", code_to_carry, lambda root_rank: {"root_rank": np.int32(root_rank)}),
        _batch_each(broadcast_p), _jvp_of_several(broadcast_p), _transpose_broadcast)
_define(allgather_p, _run_allgather, _allgather_shape,
        _lower_to("rueda.allgather", "allgather", code_to_carry, lambda first_dims: {"first_dims": np.array(first_dims, np.int64)}),
        _batch_rows(allgather_p), _jvp_of_one(allgather_p), _transpose_allgather)
_define(reduce_scatter_p, _run_reduce_scatter, _scattered_shape,
        _lower_to("rueda.reduce_scatter", "reducescatter", code_to_reduce, _scatter_attributes),
        _batch_rows(reduce_scatter_p), _jvp_of_one(reduce_scatter_p), _transpose_reduce_scatter)
_define(alltoall_p, _run_alltoall, _alltoall_shape,
        _lower_to("rueda.alltoall", "alltoall", code_to_carry, lambda splits: {"splits": np.array(splits, np.int64)}),
        _batch_rows(alltoall_p), _jvp_of_one(alltoall_p), _transpose_alltoall)
