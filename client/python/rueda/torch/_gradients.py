"""Reduces gradients: they are submitted as backward() computes them, and waited for before the optimizer's step.

A gradient lives in the arena from its first reduction on: `p.grad` is a view of memory that the daemon reads and writes where it
is, so nothing is copied between backward and the ring (decision 34)."""

from __future__ import annotations

import dataclasses
import os
import warnings
import weakref
from typing import Any, Callable, List, Optional, Sequence

import numpy as np
import torch

from .._core import _context
from .._core._errors import RuedaError
from .._core._library import ReduceOptions, Tensor
from .._core._prepared import PreparedAllreduce
from .._core._process_sets import ProcessSet, id_of
from .._core._switches import is_switched_on
from .._torch_common import _device
from .._torch_common._tensors import CODE_OF, c_tensor, dims_of, is_shared, memory_in_arena, tensor_of
from . import _ops
from ._compression import Compression
from ._declared import Description, declare, look_before_backward, places_of
from ._errors import HorovodInternalError, horovod_error
from ._graph import Walk
from ._reductions import Adasum, options_of
from ._sparse import sparse_allreduce_async

_WIRE_DTYPES = {Compression.fp16: "float16", Compression.bf16: "bfloat16"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Says how gradients are reduced.

    Attributes:
        zero_copy: gradients live in the arena.
        overlap: gradients are reduced during backward(), and not after it.
        declares: what a step reduces is declared before the first one. It must be the same on all ranks.
    """

    op: int
    compression: Any
    prescale_factor: float
    postscale_factor: float
    process_set: ProcessSet
    sparse_as_dense: bool
    takes_sparse_alone: bool = False  # the optimizer takes only sparse gradients, so a dense one becomes sparse again
    zero_copy: bool = dataclasses.field(default_factory=lambda: is_switched_on("RUEDA_TORCH_ZERO_COPY", True))
    overlap: bool = dataclasses.field(default_factory=lambda: is_switched_on("RUEDA_TORCH_OVERLAP", True))
    declares: bool = dataclasses.field(default_factory=lambda: is_switched_on("RUEDA_TORCH_DECLARE", True))


class Gradient:
    """The gradient of one parameter. The value that is reduced is that of `p.grad` at the time of its submission.

    Whoever keeps a tensor keeps its values: `p.grad` may be set to something else, and so may its `.data`; and memory of the
    arena that somebody else has a tensor of belongs to them from the next zero_grad(set_to_none=True) on."""

    def __init__(self, name: str, parameter: torch.Tensor, unit: "Unit") -> None:
        self.name = name
        self.parameter = parameter
        self.unit = unit
        self.in_arena: Optional[torch.Tensor] = None  # the tensor that p.grad was set to last
        self._memory: Optional[np.ndarray] = None  # the arena's memory, of which in_arena is a tensor unless somebody changes it
        self._address = 0  # the address of _memory
        self._zeros_version = -1  # in_arena's version when zeros were put there in place of None
        self._is_frozen = False  # true: p.grad is zeros during its group's reduction, and _before afterwards
        self._before: Optional[torch.Tensor] = None
        self.passes_left = 0
        self.sparse_dims: Optional[int] = None  # the sparse dimensions of the last sparse gradient
        self._node: Any = None
        self._node_address = 0  # the address of the parameter's data when the node was asked for

    def listen(self, on_ready: "Callable[[Gradient], None]") -> None:
        """Calls on_ready from now on whenever backward() has accumulated into the gradient."""
        if not self.parameter.requires_grad or (self._node is not None and not self.is_deaf()):
            return
        # The node lives as long as it is referenced; there is no other way to it.
        node = self.parameter.expand_as(self.parameter).grad_fn.next_functions[0][0]
        if node is not self._node:
            node.register_hook(lambda *_: on_ready(self))
            self._node = node
        self._node_address = self.parameter.data_ptr()

    def is_deaf(self) -> bool:
        """Returns whether the parameter's data was replaced (model.half() does so), so that PyTorch may accumulate by another
        node. Then on_ready is not called until listen() is, and the gradient is submitted when the step is made."""
        return self._node is not None and self.parameter.data_ptr() != self._node_address

    def fill(self) -> torch.Tensor:
        """Returns the gradient, or zeros where none was computed, because other ranks may have one."""
        parameter = self.parameter
        if not parameter.requires_grad:
            self._is_frozen, self._before = True, parameter.grad
            parameter.grad = None
        if parameter.grad is None:
            dims = self.unit.sparse_dims(self)
            if self.put_zeros():
                pass
            elif dims is not None:
                parameter.grad = _sparse_zeros(parameter, dims)
            else:
                parameter.grad = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        assert parameter.grad is not None
        return parameter.grad

    def give_back(self) -> None:
        """Takes the gradient away again from a frozen parameter in a group, after the reduction. An optimizer skips a parameter
        without a gradient; with zeros, momentum and weight decay would move it. A gradient that the parameter had kept is
        restored, and is not the reduced one."""
        if self._is_frozen:
            self.parameter.grad = self._before
            self._is_frozen, self._before = False, None

    def make_sparse(self) -> None:
        grad = self.parameter.grad
        if grad is not None and not grad.is_sparse:
            self.parameter.grad = grad.to_sparse(self.sparse_dims or 1)

    def is_in_arena(self) -> bool:
        """Returns whether p.grad is the tensor that it was set to, and that tensor still has the arena's memory: `p.grad.data =
        ...` keeps the object."""
        grad = self.parameter.grad
        return (grad is not None and grad is self.in_arena and grad.data_ptr() == self._address
                and grad.dtype == self.parameter.dtype and grad.shape == self.parameter.shape and grad.is_contiguous())

    def put_zeros(self) -> bool:
        """Sets p.grad, which is None, to zeros in the memory that it had before. Returns False if there is no such memory, or
        somebody else has a tensor of it and keeps it."""
        if not self._take_memory_again():
            return False
        assert self.in_arena is not None
        self.parameter.grad = self.in_arena.zero_()
        self._zeros_version = self.in_arena._version
        return True

    def drop_zeros_if_frozen(self) -> None:
        """Sets p.grad of a parameter to None if it was frozen after zero_grad(set_to_none=True), which would have set it to None.
        """
        if not self.parameter.requires_grad and self.is_in_arena():
            assert self.in_arena is not None
            if self.in_arena._version == self._zeros_version:
                self.parameter.grad = None

    def _take_memory_again(self) -> bool:
        """Makes in_arena a new tensor of the same memory, if nobody else has one, and if the memory has the right size. p.grad
        must not be that tensor. Returns whether it was done."""
        parameter = self.parameter
        self.in_arena = None
        if self._memory is None:
            return False
        bytes_wanted = parameter.numel() * parameter.element_size()
        if is_shared(self._memory) or self._memory.nbytes != bytes_wanted:
            self._memory = None
            return False
        self.in_arena = tensor_of(self._memory, parameter.shape, parameter.dtype)
        return True

    def move_to_arena(self) -> bool:
        """Makes `p.grad` a tensor of the arena. It copies only values that are not there yet: the first time, and when p.grad or
        its data has been set to something else. Returns whether the gradient lies elsewhere than before."""
        if self.is_in_arena():
            return False
        parameter = self.parameter
        value = parameter.grad
        assert value is not None
        if value is self.in_arena:  # its data was replaced, and is to be kept until it is copied
            value = value.detach()
            parameter.grad = None
        before = self._address
        if not self._take_memory_again():
            self._memory = memory_in_arena(parameter.shape, parameter.dtype)
            self.in_arena = tensor_of(self._memory, parameter.shape, parameter.dtype)
        assert self.in_arena is not None
        self.in_arena.copy_(value.detach())
        parameter.grad = self.in_arena
        self._address = self.in_arena.data_ptr()
        return self._address != before

    def forget_memory(self) -> None:
        """Forgets the memory, which belongs to another session or to the parent process."""
        self.in_arena, self._memory, self._address = None, None, 0


def _has_own_dtype(value: torch.Tensor) -> bool:
    """Returns whether a gradient like this one is reduced with its own dtype, and not by _as_reals()."""
    return value.dtype in CODE_OF and not value.is_complex()


def _as_reals(value: Any) -> torch.Tensor:
    """Returns a tensor of the same memory in which a complex number is two real ones: they can be compressed, and have an Adasum.
    """
    value = value.detach()
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _sparse_zeros(like: torch.Tensor, dims: int) -> torch.Tensor:
    values = torch.zeros((0, *like.shape[dims:]), dtype=like.dtype, device=like.device)
    indices = torch.zeros((dims, 0), dtype=torch.int64, device=like.device)
    return torch.sparse_coo_tensor(indices, values, like.shape)


class Unit:
    """One gradient, or a group of gradients that are reduced together."""

    def __init__(self, settings: Settings) -> None:
        self.gradients: List[Gradient] = []
        self.ready = 0
        self._settings = settings
        self._prepared: Optional[PreparedAllreduce] = None  # its memory is the gradients' in_arena
        self._session = 0  # the session that the prepared memory belongs to
        self._submitted: Optional[PreparedAllreduce] = None  # _prepared, while it is under way
        self._finish: List[Callable[[], None]] = []  # the ends of reductions under way that are not prepared
        self._is_done: List[Callable[[], bool]] = []
        self.is_under_way = False

    def sparse_dims(self, gradient: Gradient) -> Optional[int]:
        """Returns the number of sparse dimensions of the gradient that is submitted where none was computed, or None for a dense
        one."""
        if self._settings.sparse_as_dense:
            return None
        return gradient.sparse_dims or (1 if self._settings.takes_sparse_alone else None)

    def describe(self) -> Optional[Description]:
        """Returns what begin() will submit, or None if that is known only when the gradients are there."""
        parameters = [gradient.parameter for gradient in self.gradients]
        if self._settings.takes_sparse_alone:
            return None
        size = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
        if self._settings.zero_copy and all(self._stays_as_it_is(parameter) for parameter in parameters):
            tensors = [self._c_tensor(gradient, gradient.parameter, None) for gradient in self.gradients]
            return Description(tensors, self._options(), self._group(), size, False)
        if (self._settings.op != Adasum and self._settings.compression is Compression.none
                and all(self._stays_on_device(parameter) for parameter in parameters)):
            return Description(self._as_submitted_elsewhere(), self._options(), self._group(), size, True)
        return None

    def _as_submitted_elsewhere(self) -> List[Tensor]:
        """Returns the gradients by the names that _begin_elsewhere() gives them, without memory."""
        names = [f"allreduce.{self.gradients[0].name}"]
        if len(self.gradients) > 1:
            names = [f"{self._group()}_{i + 1}of{len(self.gradients)}" for i in range(len(self.gradients))]
        return [c_tensor(name, None, None, dims_of(like.shape), like.dim(), CODE_OF[like.dtype], id_of(self._settings.process_set))
                for name, like in zip(names, (gradient.parameter for gradient in self.gradients))]

    @staticmethod
    def _stays_on_device(value: torch.Tensor) -> bool:
        """Returns whether a gradient like this one is reduced in a GPU's memory, with its own dtype."""
        return _has_own_dtype(value) and _device.find(value) is not None

    def begin(self) -> None:
        """Submits the gradients.

        Raises:
            HorovodInternalError: the daemon refuses them.
        """
        self.is_under_way = True
        if self._prepared is not None and self._session == _context.session():
            for gradient in self.gradients:
                if not gradient.is_in_arena() or not gradient.parameter.requires_grad:
                    break
            else:  # as in nearly every step
                self._submit_prepared()
                return
        dense = []
        for gradient in self.gradients:
            value = gradient.fill()
            if value.is_sparse and self._settings.sparse_as_dense:
                gradient.sparse_dims = value.sparse_dim()
                gradient.parameter.grad = value.to_dense()
            elif value.is_sparse:
                self._begin_sparse(gradient, value)
                continue
            dense.append(gradient)
        if dense and self._can_stay_in_arena(dense):
            self._begin_in_arena(dense)
        elif dense:
            self._begin_elsewhere(dense)

    def is_done(self) -> bool:
        if self._submitted is not None:
            return self._submitted.is_done()
        return all(is_done() for is_done in self._is_done)

    def finish(self) -> None:
        """Waits for the gradients. All their reductions have ended when this returns or raises."""
        self.is_under_way = False
        self.ready = 0
        try:
            self._wait()
        finally:
            for gradient in self.gradients:
                gradient.give_back()
                if self._settings.sparse_as_dense and self._settings.takes_sparse_alone:
                    gradient.make_sparse()

    def _wait(self) -> None:
        if self._submitted is not None:
            submitted, self._submitted = self._submitted, None
            try:
                submitted.wait()
            except RuedaError as failure:
                raise horovod_error(failure) from None
            return
        error: Optional[HorovodInternalError] = None
        finish, self._finish, self._is_done = self._finish, [], []
        for one in finish:
            try:
                one()
            except HorovodInternalError as failure:
                error = error or failure
        if error is not None:
            raise error

    def forget(self) -> None:
        """Forgets what is under way, and what is prepared."""
        self.ready, self.is_under_way = 0, False
        self._finish, self._is_done, self._prepared, self._submitted = [], [], None, None

    def _can_stay_in_arena(self, gradients: Sequence[Gradient]) -> bool:
        values = [gradient.parameter.grad for gradient in gradients]
        return (self._settings.zero_copy and len(gradients) == len(self.gradients)
                and all(self._stays_as_it_is(value) for value in values)
                and not any(value.requires_grad or value.is_shared() for value in values))

    def _stays_as_it_is(self, value: torch.Tensor) -> bool:
        """Returns whether a gradient like this one is reduced where it is, with its own dtype."""
        compression = self._settings.compression
        return ((compression is Compression.none or self._wire_dtype() is not None and value.dtype == torch.float32)
                and _has_own_dtype(value) and _device.find(value) is None)

    def _wire_dtype(self) -> Optional[str]:
        """Returns the part of the compression that the daemon can do, which is to round float32 where it crosses the network."""
        return _WIRE_DTYPES.get(self._settings.compression)

    def _begin_in_arena(self, gradients: Sequence[Gradient]) -> None:
        if self._session != _context.session():  # memory of another session is foreign to this one
            for gradient in gradients:
                gradient.forget_memory()
            self._prepared = None
        if any([gradient.move_to_arena() for gradient in gradients]):
            self._prepared = None
        if self._prepared is None:
            self._prepared = self._prepare(gradients)
            self._session = _context.session()
        self._submit_prepared()

    def _submit_prepared(self) -> None:
        assert self._prepared is not None
        try:
            self._prepared.begin()
        except RuedaError as error:
            raise horovod_error(error) from None
        self._submitted = self._prepared

    def _prepare(self, gradients: Sequence[Gradient]) -> PreparedAllreduce:
        tensors = []
        for gradient in gradients:
            value = gradient.in_arena
            assert value is not None
            tensors.append(self._c_tensor(gradient, value, value))
        return PreparedAllreduce(tensors, self._options(), self._group())

    def _c_tensor(self, gradient: Gradient, like: torch.Tensor, memory: Optional[torch.Tensor]) -> Tensor:
        return c_tensor(f"allreduce.{gradient.name}", memory, memory, dims_of(like.shape), like.dim(), CODE_OF[like.dtype],
                        id_of(self._settings.process_set))

    def _options(self) -> ReduceOptions:
        settings = self._settings
        return options_of(settings.op, settings.prescale_factor, settings.postscale_factor, self._wire_dtype())

    def _group(self) -> Optional[str]:
        return None if len(self.gradients) == 1 else f"grouped_allreduce.{self.gradients[0].name}"

    def _begin_elsewhere(self, gradients: Sequence[Gradient]) -> None:
        settings = self._settings
        values = [_as_reals(gradient.parameter.grad) for gradient in gradients]
        smaller, contexts = zip(*(settings.compression.compress(value) for value in values))
        asked = (settings.op, settings.prescale_factor, settings.postscale_factor, settings.process_set)
        if len(gradients) == 1:
            handle = _ops.allreduce_async_(smaller[0], None, gradients[0].name, *asked)
        else:
            handle = _ops.grouped_allreduce_async_(list(smaller), None, gradients[0].name, *asked)

        def finish() -> None:
            _ops.synchronize(handle)
            for value, one, context in zip(values, smaller, contexts):
                result = settings.compression.decompress(one, context)
                if result.data_ptr() != value.data_ptr():
                    value.copy_(result)

        self._finish.append(finish)
        self._is_done.append(lambda: _ops.poll(handle))

    def _begin_sparse(self, gradient: Gradient, value: torch.Tensor) -> None:
        dims = self.sparse_dims(gradient)
        if value._nnz() == 0 and dims is not None:
            value = _sparse_zeros(value, dims)  # zero_grad() of PyTorch 1.13 leaves more of them
        gradient.sparse_dims = value.sparse_dim()
        handle = sparse_allreduce_async(value, gradient.name, self._settings.op, self._settings.process_set)

        def finish() -> None:
            gradient.parameter.grad = handle()

        self._finish.append(finish)
        self._is_done.append(handle.poll)


class Reducer:
    """Reduces all gradients of an optimizer."""

    def __init__(self, settings: Settings, passes: int) -> None:
        self.settings = settings
        self.passes = passes
        self.units: List[Unit] = []
        self._under_way: List[Unit] = []
        self._is_in_child = False
        self._is_active, self._session = False, -1  # whether there are other ranks in that session
        self.is_synchronized = False  # the user has called synchronize(), and no gradient has been computed since
        self.graph: Optional[Walk] = None  # the graph of the first backward(), until the plan is declared
        self._declared_in = -1  # the session in which the plan was declared
        _reducers.add(self)
        if settings.declares:
            look_before_backward(_reducers)

    def stay_out_of_child(self) -> None:
        """Lets go, in a forked child, of what is shared with the parent and the daemon. Nothing is reduced there."""
        self._is_in_child = True
        self._is_active = False
        self._under_way = []
        for unit in self.units:
            unit.forget()
            for gradient in unit.gradients:
                if gradient.in_arena is not None and gradient.parameter.grad is gradient.in_arena:
                    gradient.parameter.grad = None
                gradient.forget_memory()
                gradient.passes_left = self.passes

    def add(self, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> None:
        """Adds parameters whose gradients are reduced together."""
        unit = Unit(self.settings)
        for name, parameter in zip(names, parameters):
            gradient = Gradient(name, parameter, unit)
            gradient.passes_left = self.passes
            gradient.listen(self._on_ready)
            unit.gradients.append(gradient)
        self.units.append(unit)

    def is_active(self) -> bool:
        """Returns whether there is any other rank to reduce with.

        Raises:
            ValueError: init() has not been called.
        """
        if self._session != _context.session():
            chosen = self.settings.process_set
            self._is_active = not self._is_in_child and _context.size() > 1 and chosen.included() and chosen.size() > 1
            self._session = _context.session()
        return self._is_active

    def is_under_way(self) -> bool:
        return bool(self._under_way)

    def drop_zeros_of_frozen(self) -> None:
        for unit in self.units:
            for gradient in unit.gradients:
                gradient.drop_zeros_if_frozen()

    def is_still_synchronized(self) -> bool:
        """Returns whether nothing was computed since synchronize(), as far as the hooks have been told."""
        return self.is_synchronized and not any(gradient.is_deaf() for unit in self.units for gradient in unit.gradients)

    def _on_ready(self, gradient: Gradient) -> None:
        if gradient.passes_left <= 0:
            if not self.is_active():
                return
            raise AssertionError(
                f"the gradient of {gradient.name} was computed more than backward_passes_per_step={self.passes} "
                "times before step() or synchronize(). If an epoch ends within a window, call step() or synchronize() there; "
                "to accumulate over more passes, raise backward_passes_per_step")
        gradient.passes_left -= 1
        self.is_synchronized = False
        unit = gradient.unit
        if gradient.passes_left > 0:
            return
        unit.ready += 1
        if self.settings.overlap and unit.ready == len(unit.gradients) and self.is_active():
            self._begin(unit)

    def is_to_declare(self) -> bool:
        """Returns whether the first gradient that is there will first make all ranks declare their plans."""
        return (self.settings.declares and _context.is_initialized() and self._declared_in != _context.session()
                and self.is_active() and id_of(self.settings.process_set) == 0)

    def has_any(self, leaves: Sequence[torch.Tensor]) -> bool:
        own = {id(gradient.parameter) for unit in self.units for gradient in unit.gradients}
        return any(id(leaf) in own for leaf in leaves)

    def _declare(self) -> None:
        units = self._units_as_expected()
        described = [unit.describe() for unit in units]
        is_known = None not in described and not (self.graph and self.graph.has_sparse)
        declare([one for one in described if one] if is_known else None)
        self.graph = None

    def _units_as_expected(self) -> List[Unit]:
        """Returns the units that will be reduced in each step, in the order in which they are expected to be ready. What the graph does
        not reach comes last. Where there is no graph, the last parameters come first."""
        units = [unit for unit in reversed(self.units) if any(gradient.parameter.requires_grad for gradient in unit.gradients)]
        if self.graph is None or self.graph.hides_some:
            return units
        places = places_of(self.graph.leaves)
        return sorted(units, key=lambda unit: max(places.get(id(gradient.parameter), len(places)) for gradient in unit.gradients))

    def _begin(self, unit: Unit) -> None:
        if self._declared_in != self._session:
            if self.is_to_declare():
                self._declare()
            self._declared_in = self._session
        self._under_way.append(unit)
        unit.begin()

    def begin_rest(self) -> None:
        """Submits the gradients that backward() has not submitted: those that were not computed here, and those of parameters
        that need a gradient only now."""
        for unit in self.units:
            if unit.is_under_way:
                continue
            for gradient in unit.gradients:
                gradient.listen(self._on_ready)
            if any(gradient.parameter.requires_grad for gradient in unit.gradients):
                self._begin(unit)

    def finish_some(self) -> List[Unit]:
        """Waits for the gradients that were submitted first, and returns them with all others whose reductions have ended.
        Returns an empty list if none are left."""
        if not self._under_way:
            return []
        rest, finished = self._under_way[1:], [self._under_way[0]]
        finished[0].finish()
        finished += [unit for unit in rest if unit.is_done()]
        for unit in finished[1:]:
            unit.finish()
        self._under_way = [unit for unit in rest if unit.is_under_way]
        return finished

    def finish_all(self) -> None:
        """Waits for all gradients. The first error is raised when all reductions have ended."""
        error: Optional[HorovodInternalError] = None
        under_way, self._under_way = self._under_way, []
        for unit in under_way:
            try:
                unit.finish()
            except HorovodInternalError as failure:
                error = error or failure
        self.begin_step()
        if error is not None:
            raise error

    def abandon(self) -> None:
        """Waits for all reductions, whether they succeed or not."""
        try:
            self.finish_all()
        except HorovodInternalError:
            pass

    def begin_step(self) -> None:
        """Counts backward passes from here."""
        for unit in self.units:
            unit.ready = 0
            for gradient in unit.gradients:
                gradient.passes_left = self.passes

    def in_arena(self) -> List[Gradient]:
        """Returns the gradients whose memory is the arena's."""
        return [gradient for unit in self.units for gradient in unit.gradients if gradient.is_in_arena()]


_reducers: "weakref.WeakSet[Reducer]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for reducer in list(_reducers):
        reducer.stay_out_of_child()


os.register_at_fork(after_in_child=_after_fork_in_child)


def warn_of_second_synchronize() -> None:
    warnings.warn("optimizer.step() called without optimizer.skip_synchronize() context after "
                  "optimizer.synchronize(); the gradients are not reduced again", stacklevel=3)
