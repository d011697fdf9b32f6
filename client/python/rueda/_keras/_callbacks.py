"""Implements callbacks for model.fit(), to be mixed into the Callback of a Keras."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np

from .._core import _context, _operations
from .._core._errors import RuedaError
from ..common.exceptions import horovod_error

Logs = Optional[Dict[str, Any]]


def variables_of(optimizer: Any) -> List[Any]:
    variables = getattr(optimizer, "variables", [])
    return list(variables() if callable(variables) else variables)


def is_built(optimizer: Any) -> bool:
    return bool(getattr(optimizer, "built", getattr(optimizer, "_built", False)))  # as Keras 3 and Keras 2 say


def settle(model: Any) -> None:
    """Has the variables of a model hold what training has made of them: on JAX they do not while fit() runs."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


class Broadcasting:
    """Gives all ranks the weights and the optimizer's variables of `root_rank` when training begins, so that all begin alike. That
    is before the first step where the model is built by then, and otherwise after it. `local_variables` stay each rank's own, as do
    seeds, so that ranks drop out different units; `device` is not used."""

    model: Any
    broadcast_variables: Callable[[List[Any], int], Any]

    def __init__(self, root_rank: int, device: str = '', local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self._local = {id(variable) for variable in local_variables or ()}
        self._is_done = False

    def register_local_var(self, var: Any) -> None:
        """Leaves a variable out: it stays this rank's own."""
        self._local.add(id(var))

    def _broadcast(self) -> None:
        settle(self.model)
        variables = [*self.model.weights, *variables_of(self.model.optimizer)]
        type(self).broadcast_variables([one for one in variables if id(one) not in self._local], self.root_rank)
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
    """Replaces metrics at the end of each epoch by their averages over all ranks, which have the same metrics. It comes before
    callbacks that use them. `device` is not used."""

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
    """Sets the learning rate to `initial_lr` times `multiplier`, a number or a function of the epoch, from `start_epoch` until
    before `end_epoch`: once an epoch if `staircase`, and otherwise in each step, with an epoch that is a fraction. Where the
    optimizer has its momentum in a variable, as Keras's legacy ones have, it is corrected for one step after a change."""

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
            settle(self.model)
            logs["lr"] = float(np.asarray(self.model.optimizer.learning_rate))

    def _set_rate(self, epoch: float) -> None:
        settle(self.model)
        optimizer = self.model.optimizer
        before = float(np.asarray(optimizer.learning_rate))
        after = self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = after
        momentum = getattr(optimizer, "momentum", None)
        if self.momentum_correction and hasattr(momentum, "assign") and before > 0:
            self._momentum = float(np.asarray(momentum))
            momentum.assign(self._momentum * after / before)  # type: ignore[union-attr]


class LearningRateWarming(LearningRateScheduling):
    """Raises the learning rate within `warmup_epochs` from initial_lr / size() to `initial_lr`, the rate for all ranks together."""

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


class BestKeeping:
    """Saves the model whenever `monitor` is the best so far. Set `filepath`, or pass it; one rank is enough."""

    def __init__(self, monitor: str = "val_loss", verbose: int = 0, save_weights_only: bool = False, mode: str = "auto",
                 save_freq: Any = "epoch", filepath: Optional[str] = None) -> None:
        super().__init__(filepath="not set.weights.h5" if save_weights_only else "not set.keras", monitor=monitor,  # type: ignore[call-arg]
                         verbose=verbose, save_best_only=True, save_weights_only=save_weights_only, mode=mode, save_freq=save_freq)
        self.filepath = filepath

    def on_train_begin(self, logs: Logs = None) -> None:
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint has no file; set its filepath")
        super().on_train_begin(logs)  # type: ignore[misc]


def make_callback(mixin: type, base: Any, name: str, module: str, **attributes: Any) -> Any:
    """Returns the callback of a Keras that one of the classes here is for, with that class's documentation."""
    return type(name, (mixin, base), {"__doc__": mixin.__doc__, "__module__": module, **attributes})


def callbacks_of(keras: Any, module: str, broadcast_variables: Callable[[List[Any], int], Any]) -> Tuple[Any, ...]:
    """Returns BestModelCheckpoint, BroadcastGlobalVariablesCallback, LearningRateScheduleCallback, LearningRateWarmupCallback and
    MetricAverageCallback for a Keras."""
    base = keras.callbacks.Callback
    return (make_callback(BestKeeping, keras.callbacks.ModelCheckpoint, "BestModelCheckpoint", module),
            make_callback(Broadcasting, base, "BroadcastGlobalVariablesCallback", module,
                          broadcast_variables=staticmethod(broadcast_variables)),
            make_callback(LearningRateScheduling, base, "LearningRateScheduleCallback", module),
            make_callback(LearningRateWarming, base, "LearningRateWarmupCallback", module),
            make_callback(MetricAveraging, base, "MetricAverageCallback", module))
