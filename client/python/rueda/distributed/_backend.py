"""Implements PyTorch's process group over the daemons."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from datetime import timedelta
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .._core._errors import MISMATCH, RuedaError
from .._core._library import Tensor, byref
from .._core._operations import ReduceOp, make_options
from .._core._transfers import ANY_SOURCE
from .._torch_common import _device as _memory
from .._torch_common._tensors import as_moved, c_tensor, check_tensor, code_of, contiguous, dims_of, result_of, submit_async
from ._barrier import pass_monitored
from ._device import DeviceOperation, ThroughHost, through_host
from ._futures import Follower, Turns, Watcher
from ._names import Names
from ._operation import Operation, Waitable
from ._options import Options, timeout_of
from ._reductions import bitwise_of, op_of, scale_of
from ._sparse import allreduce_sparse
from ._start import Session, current, session
from ._transfer import All, Finished, Kept, Message, Repeated
from ._work import Work

Tensors = List[torch.Tensor]

# This hint is for calls that are carried out as an all-gather, or after one, when ranks disagree on them.
_SPLITS = ("; an all_to_all with split sizes, or of lists, begins with an exchange of the sizes: give all_to_all_single tensors of one dtype on "
           "all ranks, and where it has no split sizes, of one size")
_NUMBERS = "; the ranks must give as many tensors to a coalesced call"
# No tensor of an all-to-all has so many dimensions but the ranks' sizes, which are told by this number of ones.
_DIMENSIONS_OF_SIZES = 7
_BITWISE = ("; an all_reduce by BAND, BOR or BXOR is an all-gather, whose shape has one dimension more for BOR, and two more for BXOR: "
            "give all_reduce the same op on all ranks")


def _noted(method: Callable[..., Work]) -> Callable[..., Work]:
    """Lets _end_coalescing() return what this method returned, where there was a _start_coalescing()."""
    @functools.wraps(method)
    def call(group: "ProcessGroupRueda", *arguments: Any, **named: Any) -> Work:
        work = method(group, *arguments, **named)
        if group._is_coalescing:
            group._coalesced_work = work
        return work

    return call


def _as_sent(tensor: torch.Tensor) -> Tuple[int, int, int]:
    """Returns the address, the number of elements and the dtype's number of a contiguous tensor that is sent or received."""
    moved = as_moved(tensor)
    return moved.data_ptr(), moved.numel(), code_of(moved)


class ProcessGroupRueda(dist.ProcessGroup):  # type: ignore[misc]
    """A process group. All methods may be called from any thread, if all ranks of the group make the same calls in the same
    order, as PyTorch asks of them.

    `is_split` says that split_group() has made it, and not new_group().

    Tensors that are submitted must not change before the operation's end, and results may be looked at after it: Work.wait()."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, is_split: bool = False) -> None:
        super().__init__(rank, size)
        self._is_split = is_split
        self._store = store
        self._place = rank
        self._count = size
        self.seconds = timeout.total_seconds()
        self._session: Session
        self._session, self._ranks = _ranks_of(store, rank, size, timeout)
        assert self._session.sets is not None
        self._set = self._session.sets.acquire(self._ranks, self.seconds)
        self._made, self._ordinal, last = self._session.count_group(self._ranks)
        self._names = Names()
        self._calling = threading.RLock()  # is held while a name is chosen, because names follow the order of the calls
        name = f"rueda-group-{self._set}.{self._ordinal}"
        self._follower = Follower(name)
        self._watcher = Watcher(f"{name}-watch")
        self._turns = Turns(self._follower, self._watcher, last)
        self._messages = Kept()
        self._sequence = self._splits = 0
        self._name = self._description = ""
        self._is_coalescing = False  # between _start_coalescing() and _end_coalescing()
        self._coalesced_work: Optional[Work] = None
        self._release = weakref.finalize(self, self._session.leave_group, self._ranks, self._turns)
        self._release.atexit = False

    # --- What PyTorch asks -----------------------------------------------------------------------------------------

    def getBackendName(self) -> str:
        return "rueda"

    def _get_backend_name(self) -> str:
        return "rueda"

    def name(self) -> str:
        return "rueda"

    def rank(self) -> int:
        return self._place

    def size(self) -> int:
        return self._count

    getRank, getSize = rank, size

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    setSequenceNumberForGroup, getSequenceNumberForGroup = _set_sequence_number_for_group, _get_sequence_number_for_group

    # PyTorch 2 keeps a group's name in the group's backends, and this group has none.
    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    # PyTorch 2's own groups have a store from the beginning, by which libraries meet that are given only a group.
    def get_group_store(self) -> Any:
        return self._store

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    # PyTorch 2 asks which devices' tensors a group takes (dcp.async_save() wants one for the CPU's), and the backend of a device
    # what it can. While PyTorch makes the group, which it puts into its list at the end, there must be none: its flight recorder
    # would look for backends that are PyTorch's own.
    @property
    def _device_types(self) -> List[torch.device]:
        world = getattr(dist.distributed_c10d, "_world", None)
        is_made = self._is_split or world is not None and self in world.pg_map  # split_group() looks before
        return [torch.device("cpu"), torch.device("cuda")] if is_made else []

    supports_coalescing = supports_time_estimate = False
    supports_splitting = True

    # torch.distributed._coalescing_manager(device=...) makes one coalesced call between these two, whose work it takes from the second.
    # That of PyTorch 1.13 has no device, and gives the works of its messages to the second, for which it waits itself.
    def _start_coalescing(self, device: Any = None) -> None:
        self._is_coalescing, self._coalesced_work = True, None

    def _end_coalescing(self, device_or_works: Any = None) -> Optional[Work]:
        work, self._coalesced_work, self._is_coalescing = self._coalesced_work, None, False
        return work

    def _get_backend(self, device: torch.device) -> "ProcessGroupRueda":
        return self

    @property
    def options(self) -> Options:
        """The group's options: its timeout, and in PyTorch 2 its ranks in the job and its name. To change them has no effect."""
        options = Options(timedelta(seconds=self.seconds))
        options.global_ranks_in_group, options.group_name = list(self._ranks), self._name
        return options

    def eager_connect_single_device(self, device: Optional[torch.device] = None) -> None:
        """Does nothing, because a group is connected from the beginning. PyTorch 2 calls it for groups that can be split."""

    def split_group(self, ranks: Sequence[int], timeout: Optional[timedelta] = None, opts: Any = None,
                    group_name: Optional[str] = None, group_desc: Optional[str] = None,
                    device_types: Any = None) -> "Optional[ProcessGroupRueda]":
        """Makes a group of some of this group's ranks; torch.distributed.split_group() calls it on all ranks of this group.

        Args:
            ranks: the members, by their ranks in this group, in the order of their ranks in the new one.
            timeout: the new group's timeout; None means this group's. A timeout in `opts` counts more.
            opts: an Options, or None.
            group_name: the new group's name, which no other group of these ranks has had; the members agree on it.
            group_desc: a description.
            device_types: has no effect, because a group takes tensors of all devices.

        Returns:
            The new group, or None if this rank is none of its members.
        """
        members = [int(rank) for rank in ranks]
        if len(set(members)) < len(members) or not all(0 <= rank < self._count for rank in members):
            raise ValueError(f"ranks={members} must be different ranks of this group, from 0 to {self._count - 1}")
        seconds = timeout_of(opts, timedelta(seconds=self.seconds) if timeout is None else timeout)
        self._splits += 1
        if self._place not in members:
            return None
        name = group_name or f"{self._name}:split:{'.'.join(map(str, members))}:{self._splits}"
        group = ProcessGroupRueda(dist.PrefixStore(f"{name}/", self._store), members.index(self._place), len(members), seconds,
                                  is_split=True)
        group.setGroupName(name)
        group.setGroupDesc(group_desc or "undefined")
        return group

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of all later calls."""
        self.seconds = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """Releases the group, which is not used any more on this rank."""
        self._release()

    # --- Reductions ------------------------------------------------------------------------------------------------

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        op = _reduction(opts)
        if tensors[0].is_sparse:
            return self._allreduce_sparse(tensors, op)
        function = bitwise_of(op)
        if function is not None:
            return self._allreduce_bitwise(tensors, *function)
        return self.allreduce_by(tensors, op_of(op), scale=scale_of(op))

    @through_host("an all_reduce of sparse tensors")
    def _allreduce_sparse(self, tensors: Tensors, op: Any) -> Work:
        return self._done("all_reduce", allreduce_sparse(self, tensors, op))

    @_noted
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        op = _reduction(opts)
        agreed = self._agree_on_number("all_reduce", tensors)
        if not tensors or tensors[0].is_sparse or bitwise_of(op) is not None:
            Work(agreed, self.seconds, self._follower).wait()
            return self.allreduce(tensors, opts) if tensors else self._done("all_reduce", [])
        return self.allreduce_by(tensors, op_of(op), name=f"part.{agreed.number}", after=agreed, scale=scale_of(op))

    def allreduce_by(self, tensors: Tensors, op: ReduceOp, wire_dtype: Optional[str] = None,
                     name: Optional[str] = None, after: Optional[Operation] = None, scale: float = 1.0) -> Work:
        """All-reduces in place by one of Rueda's reductions; several tensors are reduced as one.

        Args:
            tensors: the tensors.
            op: the reduction.
            wire_dtype: the dtype to which float32 is rounded between nodes.
            name: a name for this reduction alone; None lets the group choose one.
            after: an operation that must have succeeded before this one begins.
            scale: each rank's tensors are multiplied by it first; it is the same on all ranks.

        Returns:
            The Work of the reduction.
        """
        for tensor in tensors:
            check_tensor(tensor)
            if tensor.is_complex() and op not in (ReduceOp.Sum, ReduceOp.Average, ReduceOp.Product):
                raise ValueError(f"{str(tensor.dtype).partition('.')[2]} has no {op.name}; use SUM, AVG or PRODUCT")
        sources = [contiguous(tensor.detach()) for tensor in tensors]
        codes = [code_of(source) for source in sources]
        options = make_options(op, scale, 1.0, wire_dtype=wire_dtype)
        kind = ("all_reduce", op.name, wire_dtype or "", *(_words(tensor) for tensor in tensors))
        device = _memory.of_all(tensors)
        prefix, stream = _on_device(device, sources[0])

        def start(name: str) -> int:
            if len(sources) == 1:
                return submit_async(f"{prefix}allreduce_async", byref(self._told(name, sources[0], sources[0], codes[0])),
                                    byref(options), *stream)
            told = (Tensor * len(sources))(*(self._told(f"{name}.{i}", source, source, code)
                                             for i, (source, code) in enumerate(zip(sources, codes))))
            return submit_async(f"{prefix}grouped_allreduce_async", name.encode(), told, len(sources), byref(options),
                                *stream)

        def finish() -> Tensors:
            for tensor, source in zip(tensors, sources):
                _put(tensor, source)
            return list(tensors)

        return self._begin(kind, start, finish, sources, name, device, after=after)

    @through_host("a bitwise all_reduce")
    def _allreduce_bitwise(self, tensors: Tensors, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
                           dimensions: int) -> Work:
        for tensor in tensors:
            check_tensor(tensor)
            # The number of dimensions tells one function from another, so ranks that use different functions disagree on the
            # shape.
            source = contiguous(tensor.detach()).reshape(-1, *[1] * dimensions)
            target = result_of((self._count, *tensor.shape), tensor.dtype)
            self._gather_into(target, source, None, list, "all_reduce", _BITWISE).wait()
            tensor.detach().copy_(functools.reduce(function, target.unbind()))
        return self._done("all_reduce", tensors)

    @through_host("a reduce")
    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        (tensor,) = tensors
        check_tensor(tensor)
        op, scale, root = op_of(_reduction(opts)), scale_of(_reduction(opts)), int(opts.rootRank)
        source, code = contiguous(tensor.detach()), code_of(tensor)
        target = source if root == self._place else None
        options = make_options(op, scale, 1.0)

        def start(name: str) -> int:
            return submit_async("rueda_reduce_async", byref(self._told(name, source, target, code)), self._ranks[root],
                                byref(options))

        def finish() -> Tensors:
            if target is not None:
                _put(tensor, target)
            return [tensor]

        return self._begin(("reduce", op.name, str(root), _words(tensor)), start, finish, source)

    @through_host("a reduce_scatter")
    def reduce_scatter(self, output_tensors: Tensors, input_tensors: Sequence[Tensors], opts: Any = None) -> Work:
        (output,), (inputs,) = output_tensors, input_tensors
        self._check_count("input_list", inputs)
        _check_dtypes("output and input_list", [output, *inputs])
        source = torch.cat([contiguous(tensor.detach()).reshape(-1) for tensor in inputs])
        counts = [tensor.numel() for tensor in inputs]
        if output.numel() != counts[self._place]:
            raise ValueError(f"output has {output.numel()} elements, and input_list has {counts[self._place]} for rank "
                             f"{self._place}")
        return self._reduce_scatter(output, source, counts, opts)

    @through_host("a reduce_scatter")
    def _reduce_scatter_base(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None, name: Optional[str] = None,
                             after: Optional[Operation] = None) -> Work:
        if source.numel() != output.numel() * self._count:
            raise ValueError(f"input has {source.numel()} elements, not {self._count} times output's {output.numel()}")
        return self._reduce_scatter(output, contiguous(source.detach()).reshape(-1), None, opts, name, after)

    def _reduce_scatter(self, output: torch.Tensor, source: torch.Tensor, counts: Optional[List[int]],
                        opts: Any, name: Optional[str] = None, after: Optional[Operation] = None) -> Work:
        for tensor in (output, source):
            check_tensor(tensor)
        _check_dtypes("output and input", [output, source])
        op, scale, code = op_of(_reduction(opts)), scale_of(_reduction(opts)), code_of(source)
        target = output.detach() if output.is_contiguous() else result_of(output.shape, output.dtype)
        options = make_options(op, scale, 1.0)

        def start(name: str) -> int:
            return submit_async("rueda_reduce_scatter_async", byref(self._told(name, source, target, code)),
                                _counts(counts), byref(options))

        def finish() -> Tensors:
            _put(output, target)
            return [output]

        kind = ("reduce_scatter", op.name, _words(source), "" if counts is None else str(counts))
        return self._begin(kind, start, finish, (source, target), name, after=after)

    @_noted
    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        return self._coalesced("reduce_scatter", outputs, inputs, lambda output, source, name, after: self._reduce_scatter_base(
            output, source, opts, name, after))

    # Begins a call for each pair, none of which begins before the ranks have agreed on how many there are: a call that other ranks do
    # not make would be waited for, or meet their next one.
    def _coalesced(self, what: str, outputs: Sequence[Any], inputs: Tensors, begin: Callable[..., Work]) -> Work:
        if len(outputs) != len(inputs):
            raise ValueError(f"there are {len(outputs)} outputs and {len(inputs)} inputs; give one output for each input")
        agreed = self._agree_on_number(what, inputs)
        works = [begin(output, source, f"part.{agreed.number}.{i}", agreed)
                 for i, (output, source) in enumerate(zip(outputs, inputs))]
        return self._together(what, [Work(agreed, self.seconds, self._follower), *works])

    # Begins an all-reduce of a byte whose only purpose is its group, of one tensor, in whose name the number is: the daemons compare it.
    def _agree_on_number(self, what: str, tensors: Sequence[Any]) -> Operation:
        token = torch.zeros((), dtype=torch.uint8)
        number = f"{len(tensors)} tensor{'' if len(tensors) == 1 else 's'}"
        options = make_options(ReduceOp.Sum, 1.0, 1.0)

        def start(name: str) -> int:
            return submit_async("rueda_grouped_allreduce_async", f"{name}: {what} of {number}".encode(),
                                byref(self._told(name, token, token, code_of(token))), 1, byref(options))

        return self._operation((what, "coalesced", number), start, list, token, hint=_NUMBERS)

    # --- What is only moved ----------------------------------------------------------------------------------------

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Work:
        (tensor,) = tensors
        check_tensor(tensor)
        root = int(opts.rootRank) if opts is not None else 0
        source = contiguous(tensor.detach())
        moved = as_moved(source)
        device = _memory.find(source)
        prefix, stream = _on_device(device, source)

        def start(name: str) -> int:
            return submit_async(f"{prefix}broadcast_async", byref(self._told(name, moved, moved, code_of(moved))),
                                self._ranks[root], *stream)

        def finish() -> Tensors:
            _put(tensor, source)
            return [tensor]

        return self._begin(("broadcast", str(root), _words(tensor)), start, finish, (source, moved), device=device)

    @through_host("an all_gather")
    def allgather(self, output_tensors: Sequence[Tensors], input_tensors: Tensors, opts: Any = None) -> Work:
        works = []
        for outputs, source in zip(output_tensors, input_tensors):
            self._check_count("tensor_list", outputs)
            works.append(self._allgather(outputs, source))
        return works[0] if len(works) == 1 else self._together("all_gather", works)

    def _allgather(self, outputs: Tensors, tensor: torch.Tensor, name: Optional[str] = None,
                   after: Optional[Operation] = None) -> Work:
        counts = [output.numel() for output in outputs]
        if tensor.numel() != counts[self._place] or any(output.dtype != tensor.dtype for output in outputs):
            raise ValueError(f"tensor_list[{self._place}] must have this rank's dtype {tensor.dtype} and its "
                             f"{tensor.numel()} elements, not {outputs[self._place].dtype} and {counts[self._place]}")
        source = contiguous(tensor.detach()).reshape(-1)
        target = result_of((sum(counts),), tensor.dtype)

        def finish() -> Tensors:
            for output, part in zip(outputs, target.split(counts)):
                output.detach().copy_(part.view(output.shape))
            return list(outputs)

        return self._gather_into(target, source, counts, finish, name=name, after=after)

    @through_host("an all_gather")
    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None, name: Optional[str] = None,
                        after: Optional[Operation] = None) -> Work:
        if output.numel() != tensor.numel() * self._count or output.dtype != tensor.dtype:
            raise ValueError(f"output must have {tensor.dtype} and {self._count} times input's {tensor.numel()} elements, "
                             f"not {output.dtype} and {output.numel()}")
        source = contiguous(tensor.detach()).reshape(-1)
        target = output.detach() if output.is_contiguous() else result_of(output.shape, output.dtype)

        def finish() -> Tensors:
            _put(output, target)
            return [output]

        return self._gather_into(target, source, None, finish, name=name, after=after)

    def _gather_into(self, target: torch.Tensor, source: torch.Tensor, counts: Optional[List[int]],
                     finish: Callable[[], Tensors], what: str = "all_gather", hint: str = "", name: Optional[str] = None,
                     after: Optional[Operation] = None) -> Work:
        check_tensor(target)
        check_tensor(source)
        moved, place = as_moved(source), as_moved(target)

        def start(name: str) -> int:
            return submit_async("rueda_allgather_async", byref(self._told(name, moved, place, code_of(moved))),
                                _counts(counts))

        # Values that may differ between ranks are no part of the name.
        kind = (what, _words(source)) if counts is None else (what, str(source.dtype), str(counts))
        return self._begin(kind, start, finish, (source, moved, target), name, hint=hint, after=after)

    @through_host("an all_gather")
    def allgather_coalesced(self, output_lists: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        self._check_count("output_tensor_lists", output_lists)
        return self._coalesced("all_gather", list(zip(*output_lists)), inputs, lambda outputs, source, name, after: self._allgather(
            list(outputs), source, name, after))

    @_noted
    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        return self._coalesced("all_gather", outputs, inputs, lambda output, source, name, after: self._allgather_base(
            output, source, opts, name, after))

    @through_host("a gather")
    def gather(self, output_tensors: Sequence[Tensors], input_tensors: Tensors, opts: Any) -> Work:
        (tensor,), root = input_tensors, int(opts.rootRank)
        check_tensor(tensor)
        source = contiguous(tensor.detach()).reshape(-1)
        moved = as_moved(source)
        outputs: Tensors = list(output_tensors[0]) if root == self._place else []
        if root == self._place:
            self._check_count("gather_list", outputs)
            _check_dtypes("tensor and gather_list", [tensor, *outputs])
            _check_sizes("gather_list", outputs, tensor)
        target = result_of((source.numel() * len(outputs),), tensor.dtype) if outputs else None
        place = as_moved(target) if target is not None else None

        def start(name: str) -> int:
            return submit_async("rueda_gather_async", byref(self._told(name, moved, place, code_of(moved))), None,
                                self._ranks[root])

        def finish() -> Tensors:
            if target is not None:
                for output, part in zip(outputs, target.chunk(self._count)):
                    output.detach().copy_(part.view(output.shape))
            return outputs

        return self._begin(("gather", str(root), _words(tensor)), start, finish, (source, moved, target))

    @through_host("a scatter")
    def scatter(self, output_tensors: Tensors, input_tensors: Sequence[Tensors], opts: Any) -> Work:
        (output,), root = output_tensors, int(opts.rootRank)
        check_tensor(output)
        target = output.detach() if output.is_contiguous() else result_of(output.shape, output.dtype)
        if root == self._place:
            (inputs,) = input_tensors
            self._check_count("scatter_list", inputs)
            _check_dtypes("tensor and scatter_list", [output, *inputs])
            _check_sizes("scatter_list", inputs, output)
            source = torch.cat([contiguous(tensor.detach()).reshape(-1) for tensor in inputs])
        else:
            source = torch.empty(output.numel() * self._count, dtype=output.dtype)  # only its shape counts
        moved, place = as_moved(source), as_moved(target.reshape(-1))

        def start(name: str) -> int:
            return submit_async("rueda_scatter_async", byref(self._told(name, moved, place, code_of(moved))), None,
                                self._ranks[root])

        def finish() -> Tensors:
            _put(output, target)
            return [output]

        return self._begin(("scatter", str(root), _words(output)), start, finish, (source, moved, target))

    @through_host("an all_to_all")
    def alltoall_base(self, output: torch.Tensor, source: torch.Tensor, output_splits: Sequence[int],
                      input_splits: Sequence[int], opts: Any = None) -> Work:
        for tensor in (output, source):
            check_tensor(tensor)
            if tensor.dim() == 0:
                raise ValueError("a tensor has no first dimension to be cut; pass tensor.reshape(1)")
        _check_dtypes("output and input", [output, source])
        sent = _splits(source, list(input_splits), self._count, "input")
        room = _splits(output, list(output_splits), self._count, "output")
        if not output_splits and not input_splits and sent != room:
            raise ValueError(f"output has {output.numel()} elements, and input {source.numel()}; without split sizes both must have "
                             "as many")
        given = contiguous(source.detach()).reshape(-1)
        target = output.detach() if output.is_contiguous() else result_of(output.shape, output.dtype)

        def finish() -> Tensors:
            _put(output, target)
            return [output]

        if not output_splits and not input_splits:
            return self._alltoall_evenly(target, given, sent, finish)
        return self._alltoall(target, given, *self._sizes(given, sent, room), finish)

    @through_host("an all_to_all")
    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None) -> Work:
        self._check_count("output_tensor_list", output_tensors)
        self._check_count("input_tensor_list", input_tensors)
        _check_dtypes("output_tensor_list and input_tensor_list", [*output_tensors, *input_tensors])
        counts = [output.numel() for output in output_tensors]
        given = torch.cat([contiguous(tensor.detach()).reshape(-1) for tensor in input_tensors])
        target = result_of((sum(counts),), given.dtype)
        sizes = self._sizes(given, [tensor.numel() for tensor in input_tensors], counts)

        def finish() -> Tensors:
            for output, part in zip(output_tensors, target.split(counts)):
                output.detach().copy_(part.view(output.shape))
            return list(output_tensors)

        return self._alltoall(target, given, *sizes, finish)

    # Exchanges parts of one size, as all ranks without split sizes do at once. If others have split sizes, which they tell first, all
    # ranks are told that the shapes differ, and this rank tells its sizes, too (_sizes()).
    def _alltoall_evenly(self, target: torch.Tensor, given: torch.Tensor, sent: List[int], finish: Callable[[], Tensors]) -> Work:
        moved, place = as_moved(given), as_moved(target.reshape(-1))

        def start(name: str) -> int:
            return submit_async("rueda_alltoall_async", byref(self._told(name, moved, place, code_of(moved))), None)

        first = self._operation(_alltoall_kind(given), start, finish, (given, moved, target), hint=_SPLITS)

        def again() -> Waitable:
            sizes = self._sizes_of_all(first.number, sent, sent)
            return self._alltoall(target, given, sizes, f"sized.{first.number}", finish).operation

        operation = Repeated(first, _is_of_sizes, again)
        self._watcher.watch(operation)
        return Work(operation, self.seconds, self._follower)

    def _alltoall(self, target: torch.Tensor, given: torch.Tensor, sizes: List[int], name: Optional[str],
                  finish: Callable[[], Tensors]) -> Work:
        moved, place = as_moved(given), as_moved(target.reshape(-1))

        def start(name: str) -> int:
            return submit_async("rueda_alltoall_async", byref(self._told(name, moved, place, code_of(moved))),
                                _counts(sizes))

        kind = ("all_to_all", str(given.dtype), str(sizes))
        return self._begin(kind, start, finish, (given, moved, target), name, hint=_SPLITS)

    # Exchanges how many elements each rank sends to each rank. Returns the numbers, one rank's behind the other's, and the name of the
    # exchange that they are for; None means that the group chooses one.
    #
    # Ranks without split sizes begin with the exchange itself. So this is an all-to-all of the same dtype, and only the shapes
    # differ, from which all ranks see that these were ranks with and without split sizes; then all tell their sizes. No number of the
    # rank's own is part of the kind of the call, because the numbers of later calls follow from it.
    def _sizes(self, given: torch.Tensor, sent: List[int], room: List[int]) -> "Tuple[List[int], Optional[str]]":
        own = torch.tensor([*sent, *room] * self._count, dtype=torch.int64).view(as_moved(given).dtype)
        source = own.view(-1, *[1] * _DIMENSIONS_OF_SIZES)
        target = torch.empty_like(source)

        def start(name: str) -> int:
            return submit_async("rueda_alltoall_async", byref(self._told(name, source, target, code_of(source))), None)

        exchange = self._operation(_alltoall_kind(given), start, list, (source, target), hint=_SPLITS)
        try:
            Work(exchange, self.seconds, self._follower).wait()
        except RuedaError as error:
            if not _is_of_sizes(error):
                raise
            return self._sizes_of_all(exchange.number, sent, room), f"sized.{exchange.number}"
        return self._checked_sizes(target.view(-1).view(torch.int64)), None

    def _sizes_of_all(self, number: int, sent: List[int], room: List[int]) -> List[int]:
        every = torch.empty(2 * self._count * self._count, dtype=torch.int64)
        own = torch.tensor([*sent, *room], dtype=torch.int64)
        self._gather_into(every, own, None, list, "all_to_all", _SPLITS, f"sizes.{number}").wait()
        return self._checked_sizes(every)

    # All ranks have been told what each has room for as well: if sizes do not fit, all of them raise, and no rank waits for one that
    # has raised.
    def _checked_sizes(self, every: torch.Tensor) -> List[int]:
        told = every.view(self._count, 2, self._count)
        for sender, receiver in ((told[:, 0] - told[:, 1].t()) != 0).nonzero().tolist()[:1]:
            raise ValueError(f"rank {sender} sends {told[sender, 0, receiver]} elements to rank {receiver}, whose output has "
                             f"{told[receiver, 1, sender]} for them; output_split_sizes must say what the others send")
        return [int(size) for size in told[:, 0].reshape(-1).tolist()]

    # --- Names of PyTorch's later versions -------------------------------------------------------------------------

    all_gather_single, all_gather_single_coalesced = _allgather_base, allgather_into_tensor_coalesced
    reduce_scatter_single, reduce_scatter_single_coalesced = _reduce_scatter_base, reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def gather_single(self, output: Optional[torch.Tensor], source: torch.Tensor, opts: Any) -> Work:
        is_root = int(opts.rootRank) == self._place
        outputs = [list(output.view(-1).chunk(self._count))] if is_root and output is not None else []
        return self.gather(outputs, [source], opts)

    gather_into_tensor = gather_single

    # --- Barriers --------------------------------------------------------------------------------------------------

    def barrier(self, opts: Any = None) -> Work:
        def start(name: str) -> int:
            return submit_async("rueda_process_set_barrier_async", self._set, name.encode())

        return self._begin(("barrier",), start, lambda: [], None)

    def monitored_barrier(self, timeout: Union[None, timedelta, float] = None, wait_all_ranks: bool = False) -> None:
        pass_monitored(self, self._ranks, self.seconds if timeout is None else _seconds_of(timeout), wait_all_ranks)

    # --- One to one ------------------------------------------------------------------------------------------------

    @through_host("a send", writes=False)
    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Work:
        (tensor,) = tensors
        check_tensor(tensor)
        source = contiguous(tensor.detach())

        def start() -> int:
            return submit_async("rueda_send_async", *_as_sent(source), self._ranks[dst], self._tag_of(tag), self._set)

        return self._begin_message(f"send to rank {dst}", start, lambda: [source], source)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Work:
        return self._recv(tensors, self._ranks[src], tag, f"recv from rank {src}")

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        return self._recv(tensors, ANY_SOURCE, tag, "recv from any rank")

    @through_host("a recv")
    def _recv(self, tensors: Tensors, source: int, tag: int, what: str) -> Work:
        (tensor,) = tensors
        check_tensor(tensor)
        target = tensor.detach() if tensor.is_contiguous() else torch.empty_like(
            tensor, memory_format=torch.contiguous_format)

        def start() -> int:
            return submit_async("rueda_recv_async", *_as_sent(target), source, self._tag_of(tag), self._set)

        def finish() -> Tensors:
            _put(tensor, target)
            return [target]

        return self._begin_message(what, start, finish, target)

    def _begin_message(self, what: str, start: Callable[[], int], finish: Callable[[], Tensors], memory: torch.Tensor) -> Work:
        return Work(self._begun(what, start, finish, memory), self.seconds, self._follower)

    def _begun(self, what: str, start: Callable[[], int], finish: Callable[[], Tensors], memory: torch.Tensor) -> Message:
        message = Message(what, start, finish, memory, self._ranks)
        message.begin()
        self._messages.keep(message)
        return message

    def tell(self, token: torch.Tensor, place: int, tag: int) -> Message:
        """Sends a contiguous tensor to the rank in a place of the group; the message can be cancelled."""
        def start() -> int:
            return submit_async("rueda_send_async", *_as_sent(token), self._ranks[place], self._tag_of(tag), self._set)

        return self._begun(f"send to rank {place}", start, lambda: [token], token)

    def hear(self, token: torch.Tensor, place: int, tag: int) -> Message:
        """Receives a contiguous tensor from tell()."""
        def start() -> int:
            return submit_async("rueda_recv_async", *_as_sent(token), self._ranks[place], self._tag_of(tag), self._set)

        return self._begun(f"recv from rank {place}", start, lambda: [token], token)

    # Groups of the same ranks share a process set, and their messages differ by the number of the group.
    def _tag_of(self, tag: int) -> int:
        return self._made << 32 | tag & 0xffffffff

    # --- How one is carried out ------------------------------------------------------------------------------------

    def _begin(self, kind: Tuple[str, ...], start: Callable[[str], int], finish: Callable[[], Tensors], memory: Any,
               name: Optional[str] = None, device: Optional[_memory.Cuda] = None, hint: str = "",
               after: Optional[Operation] = None) -> Work:
        return Work(self._operation(kind, start, finish, memory, name, device, hint, after), self.seconds, self._follower)

    def _operation(self, kind: Tuple[str, ...], start: Callable[[str], int], finish: Callable[[], Tensors], memory: Any,
                   name: Optional[str] = None, device: Optional[_memory.Cuda] = None, hint: str = "",
                   after: Optional[Operation] = None) -> Operation:
        """Begins an operation.

        Args:
            device: the device in whose memory the tensors are, which come first in `memory`; None means the host.
            hint: what to do if ranks disagree, where the daemons' text alone does not say it, because the call is carried out as
                another one.
            after: an operation that must have succeeded before this one begins.
        """
        with self._calling:
            self._sequence += 1
            number = self._names.number_of(kind) if name is None else 0
            chosen = f"torch{self._ordinal}.{name or 'call'}.{number}"
            if device is None:
                operation = Operation(kind[0], lambda: start(chosen), finish, memory)
            else:
                operation = DeviceOperation(kind[0], lambda: start(chosen), finish, memory, device, memory[0])
            operation.on_error, operation.hint, operation.number = self._on_error, hint, number
            self._turns.begin(chosen, operation, after)
        return operation

    # After a mismatch the ranks' calls differ. Where they wait for each call in turn, names begin anew on all ranks.
    def _on_error(self, error: BaseException) -> None:
        if isinstance(error, RuedaError) and error.code == MISMATCH and not _is_of_sizes(error):
            self._names = Names()

    def _done(self, what: str, result: Tensors) -> Work:
        return Work(Finished(what, result), self.seconds, self._follower)

    def wrapped(self, work: Work, back: "List[Tuple[torch.Tensor, torch.Tensor]]") -> Work:
        """Returns the Work of a collective on copies in the host's memory. `back` has pairs of a tensor and of the copy whose
        values it is to get."""
        return Work(ThroughHost(work.operation, back), self.seconds, self._follower)

    def _together(self, what: str, works: "List[Work]") -> Work:
        return Work(All(what, works), self.seconds, self._follower)

    def _told(self, name: str, source: torch.Tensor, target: Optional[torch.Tensor], code: int) -> Tensor:
        dims = list(source.shape) if source.dim() <= 8 else [source.numel()]
        return c_tensor(name, source, target, dims_of(dims), len(dims), code, self._set)

    def _check_count(self, what: str, tensors: Sequence[Any]) -> None:
        if len(tensors) != self._count:
            raise ValueError(f"{what} must have one for each of the {self._count} ranks, not {len(tensors)}")


def _on_device(device: Optional[_memory.Cuda], tensor: torch.Tensor) -> "Tuple[str, Tuple[int, ...]]":
    """Returns the prefix of librueda's functions for such memory, and their additional argument: the stream of the call."""
    return ("rueda_", ()) if device is None else ("rueda_device_", (device.stream_of(tensor),))


def _alltoall_kind(given: torch.Tensor) -> Tuple[str, ...]:
    return "all_to_all", str(given.dtype)


# Returns whether some ranks gave split sizes to an all-to-all and others did not, which is no mistake.
def _is_of_sizes(error: BaseException) -> bool:
    return (isinstance(error, RuedaError) and error.code == MISMATCH and ": shape is " in str(error)
            and str(error).count(", 1" * _DIMENSIONS_OF_SIZES + "]") == 1)


def _reduction(opts: Any) -> Any:
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp


def _words(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).partition(".")[2] + "x".join(["", *map(str, tensor.shape)])


def _seconds_of(timeout: Union[timedelta, float]) -> float:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


def _counts(counts: Optional[Sequence[int]]) -> Any:
    return None if counts is None else dims_of(counts)


def _put(tensor: torch.Tensor, result: torch.Tensor) -> None:
    if result.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(result)


# Returns how many elements of the tensor each rank gets, or gives.
def _splits(tensor: torch.Tensor, given: List[int], count: int, what: str) -> List[int]:
    rows, row = tensor.shape[0], math.prod(tensor.shape[1:])
    if not given:
        if rows % count:
            raise ValueError(f"{what} has {rows} rows, which cannot be cut into {count} equal parts; pass "
                             f"{what}_split_sizes")
        return [rows // count * row] * count
    if len(given) != count or min(given) < 0 or sum(given) != rows:
        raise ValueError(f"{what}_split_sizes={given} must be {count} numbers from 0 that add up to the {rows} rows of "
                         f"{what}")
    return [part * row for part in given]


# The daemon reads and writes the memory of all tensors by one dtype.
def _check_dtypes(what: str, tensors: Sequence[torch.Tensor]) -> None:
    dtypes = {tensor.dtype: None for tensor in tensors}
    if len(dtypes) > 1:
        raise ValueError(f"{what} must have one dtype, not {' and '.join(map(str, dtypes))}")


def _check_sizes(what: str, tensors: Sequence[torch.Tensor], own: torch.Tensor) -> None:
    for place, tensor in enumerate(tensors):
        if tensor.numel() != own.numel():
            raise ValueError(f"{what}[{place}] has {tensor.numel()} elements; it must have as many as tensor: {own.numel()}")


# Returns the job's rank of each of the group's ranks. The first group has all ranks. PyTorch 1.13 gives two groups that are made
# at the same time, by their members alone, the same store; so each rank says which ranks it takes for the members, and they must
# agree.
def _ranks_of(store: Any, rank: int, size: int, timeout: timedelta) -> "Tuple[Session, List[int]]":
    if not dist.is_initialized():
        return session(store, rank, size, timeout), list(range(size))
    joined = current()
    store.set(f"rueda/rank/{rank}", str(joined.rank))
    ranks = [int(store.get(f"rueda/rank/{place}")) for place in range(size)]
    store.set(f"rueda/members/{joined.rank}", str(ranks))
    for member in ranks:
        theirs = store.get(f"rueda/members/{member}").decode()
        if ranks[rank] != joined.rank or theirs != str(ranks):
            raise RuntimeError(f"rank {joined.rank} takes {ranks} for the members of a new group, and rank {member} {theirs}: "
                               "two groups were made at the same time under one name; call new_group on all ranks, in the "
                               "same order")
    return joined, ranks


def create(made: Any, options: Any = None) -> ProcessGroupRueda:
    """Makes a group; torch.distributed calls it. Joins the job if it is the process's first group.

    Args:
        made: PyTorch's description of the group.
        options: the caller's pg_options.
    """
    return ProcessGroupRueda(made.store, made.group_rank, made.group_size, timeout_of(options, made.timeout))
