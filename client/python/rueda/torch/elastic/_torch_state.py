"""Defines the state of PyTorch's objects."""

from __future__ import annotations

import copy
from typing import Any, Dict, Optional

import torch

from ..._core._context import rank
from .._errors import finish_left
from .._objects import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from ._sampler import ElasticSampler
from ..._elastic._state import ObjectState


class _Handler:
    """Keeps the state_dict() of one object, and makes it equal on all ranks."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self, root: int) -> None:
        raise NotImplementedError


class _ModelHandler(_Handler):
    def sync(self, root: int) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=root)
        self.save()


class _OptimizerHandler(_Handler):
    def sync(self, root: int) -> None:
        broadcast_optimizer_state(self.value, root_rank=root)
        self.save()


class _SamplerHandler(_Handler):
    """Handles a sampler: indices that any rank has processed count as processed on all."""

    def sync(self, root: int) -> None:
        states = allgather_object(self.value.state_dict(), "elastic_sampler")
        processed = set().union(*(state["processed_indices"] for state in states))
        self.value.load_state_dict({"epoch": states[root]["epoch"], "processed_indices": processed})
        self.save()


_HANDLERS = ((torch.nn.Module, _ModelHandler), (torch.optim.Optimizer, _OptimizerHandler),
             (ElasticSampler, _SamplerHandler))


def _handler_for(value: Any) -> Optional[_Handler]:
    return next((handler(value) for kind, handler in _HANDLERS if isinstance(value, kind)), None)


class TorchState(ObjectState):
    """The state of models, optimizers and ElasticSamplers, given by any name, and of any other object. They are attributes, and
    may be set to other objects."""

    _handlers: Dict[str, _Handler] = {}  # empty until __init__ has made the instance's own

    def __init__(self, model: Optional[torch.nn.Module] = None, optimizer: Optional[torch.optim.Optimizer] = None,
                 **kwargs: Any) -> None:
        given = {"model": model, "optimizer": optimizer, **kwargs}
        handlers = {name: _handler_for(value) for name, value in given.items() if value is not None}
        self._handlers = {name: handler for name, handler in handlers.items() if handler is not None}
        for name, handler in self._handlers.items():
            object.__setattr__(self, name, handler.value)
        others = {name: value for name, value in kwargs.items() if name not in self._handlers}
        super().__init__(broadcast_object, rank, **others)

    def save(self) -> None:
        """Keeps the state in memory.

        Raises:
            HorovodInternalError: a reduction that a GPU's stream was left to wait for has failed, so the present values are
                worthless; the last state is kept.
        """
        finish_left()
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def _sync_from(self, root: int) -> None:
        for handler in self._handlers.values():
            handler.sync(root)
        super()._sync_from(root)

    def reset(self) -> None:
        for handler in self._handlers.values():
            if isinstance(handler, _SamplerHandler):
                handler.value.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        handler = self._handlers.get(name)
        if handler is not None and value is not handler.value:
            handler.value = value
            handler.save()
