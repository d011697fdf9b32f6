"""Implements callbacks for model.fit(), to be mixed into the Callback of a Keras."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Union

import numpy as np

from .._core import _context, _operations
from .._core._errors import RuedaError
from ..common.exceptions import horovod_error
from .._tensorflow._objects import broadcast_variables

Logs = Optional[Dict[str, Any]]


def variables_of(optimizer: Any) -> List[Any]:
    variables = getattr(optimizer, "variables", [])
    return list(variables() if callable(variables) else variables)


def is_built(optimizer: Any) -> bool:
    return bool(getattr(optimizer, "built", getattr(optimizer, "_built", False)))  # as Keras 3 and Keras 2 say


class Broadcasting:
    """Gives all ranks the root's weights and optimizer, before the first step where the model is built by then, and otherwise after
    it. It leaves out what model.weights does not have: seeds, so that ranks drop out different units."""

    model: Any

    def __init__(self, root_rank: int, device: str = '', local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self._local = {id(variable) for variable in local_variables or ()}
        self._is_done = False

    def register_local_var(self, var: Any) -> None:
        """Leaves a variable out: it stays this rank's own."""
        self._local.add(id(var))

    def _broadcast(self) -> None:
        variables = [*self.model.weights, *variables_of(self.model.optimizer)]
        broadcast_variables([one for one in variables if id(one) not in self._local], self.root_rank)
        self._is_done = True

    def on_train_begin(self, logs: Logs = None) -> None:
        self._is_done = False
        optimizer = self.model.optimizer
        if not self.model.built or not self.model.weights:
            return
        if hasattr(optimizer, "build") and not is_built(optimizer):
            optimizer.build(self.model.trainable_variables)
        if is_built(optimizer):
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if not self._is_done:
            self._broadcast()


class MetricAveraging:
    """Replaces the metrics at the end of an epoch by their averages over all ranks, which have the same metrics. It comes before
    callbacks that use them."""

    def __init__(self, device: str = '') -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if not logs:
            return
        names = sorted(name for name, value in logs.items() if np.ndim(value) == 0)
        values = np.array([float(logs[name]) for name in names], np.float64)
        try:
            averages = _operations.allreduce(values, name="MetricAverageCallback")
        except RuedaError as error:
            raise horovod_error(error) from None
        logs.update(zip(names, averages.tolist()))


class LearningRateScheduling:
    """Sets the learning rate to `initial_lr` times a multiplier. Where the optimizer has its momentum in a variable, as Keras's
    legacy ones have, the momentum is corrected for one step after a change."""

    model: Any
    params: Dict[str, Any]

    def __init__(self, initial_lr: float, multiplier: Union[float, Callable[[float], float]], start_epoch: int = 0,
                 end_epoch: Optional[int] = None, staircase: bool = True, momentum_correction: bool = True,
                 steps_per_epoch: Optional[int] = None) -> None:
        super().__init__()
        if initial_lr is None or initial_lr <= 0:
            raise ValueError(f"initial_lr={initial_lr} must be positive")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.momentum_correction, self.steps_per_epoch = momentum_correction, steps_per_epoch
        self.multiplier: Callable[[float], float] = multiplier if callable(multiplier) else lambda epoch: float(multiplier)  # type: ignore[arg-type]
        self.current_epoch = 0
        self._momentum: Optional[float] = None

    def on_train_begin(self, logs: Logs = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError("the number of steps of an epoch is not known; pass steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        if self.current_epoch < self.start_epoch or self.end_epoch is not None and self.current_epoch >= self.end_epoch:
            return
        if not self.staircase:
            assert self.steps_per_epoch
            self._set_rate(self.current_epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._set_rate(self.current_epoch)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self._momentum is not None:
            self.model.optimizer.momentum.assign(self._momentum)
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if logs is not None:
            logs["lr"] = float(np.asarray(self.model.optimizer.learning_rate))

    def _set_rate(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        before = float(np.asarray(optimizer.learning_rate))
        after = self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = after
        momentum = getattr(optimizer, "momentum", None)
        if self.momentum_correction and hasattr(momentum, "assign") and before > 0:
            self._momentum = float(np.asarray(momentum))
            momentum.assign(self._momentum * after / before)  # type: ignore[union-attr]


class LearningRateWarming(LearningRateScheduling):
    """Raises the learning rate from that of one rank to `initial_lr`, which is that of all ranks, within the first epochs."""

    def __init__(self, initial_lr: float, warmup_epochs: int = 5, momentum_correction: bool = True,
                 steps_per_epoch: Optional[int] = None, verbose: int = 0) -> None:
        def multiplier(epoch: float) -> float:
            size = _context.size()
            epoch += 1.0 / (self.steps_per_epoch or 1)  # the last step of the last epoch has the whole rate
            return (epoch * (size - 1) / warmup_epochs + 1) / size

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose > 0:
            rate = float(np.asarray(self.model.optimizer.learning_rate))
            print(f"\nEpoch {epoch + 1}: the learning rate has been raised to {rate:g}")
