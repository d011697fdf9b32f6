"""Callbacks for model.fit() on several ranks."""

from __future__ import annotations

from typing import Any, Optional

from .._keras._callbacks import Broadcasting, LearningRateScheduling, LearningRateWarming, MetricAveraging
from ._backend import keras


class BroadcastGlobalVariablesCallback(Broadcasting, keras.callbacks.Callback):  # type: ignore[misc]
    """Gives all ranks the weights and the optimizer's variables of `root_rank` when training begins, so that all begin alike.

    `local_variables` stay each rank's own; `device` is not used.
    """


class MetricAverageCallback(MetricAveraging, keras.callbacks.Callback):  # type: ignore[misc]
    """Replaces metrics at the end of each epoch by their averages over all ranks. It comes first in the list of callbacks.

    `device` is not used.
    """


class LearningRateScheduleCallback(LearningRateScheduling, keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to `initial_lr` times `multiplier`, a number or a function of the epoch, from `start_epoch` until
    before `end_epoch`: once an epoch if `staircase`, and otherwise in each step, with an epoch that is a fraction."""


class LearningRateWarmupCallback(LearningRateWarming, keras.callbacks.Callback):  # type: ignore[misc]
    """Raises the learning rate within `warmup_epochs` from initial_lr / size() to `initial_lr`, the rate for all ranks together."""


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Saves the model whenever `monitor` is the best so far. Set `filepath`, or pass it; one rank is enough."""

    def __init__(self, monitor: str = "val_loss", verbose: int = 0, save_weights_only: bool = False, mode: str = "auto",
                 save_freq: Any = "epoch", filepath: Optional[str] = None) -> None:
        super().__init__(filepath="not set.weights.h5" if save_weights_only else "not set.keras", monitor=monitor, verbose=verbose,
                         save_best_only=True, save_weights_only=save_weights_only, mode=mode, save_freq=save_freq)
        self.filepath = filepath

    def on_train_begin(self, logs: Any = None) -> None:
        if self.filepath is None:
            raise ValueError("BestModelCheckpoint has no file; set its filepath")
        super().on_train_begin(logs)


__all__ = ["BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback", "LearningRateWarmupCallback",
           "MetricAverageCallback"]
