"""Callbacks for model.fit() on several ranks."""

from __future__ import annotations

from .._keras._callbacks import callbacks_of
from ._backend import functions, keras

(BestModelCheckpoint, BroadcastGlobalVariablesCallback, LearningRateScheduleCallback, LearningRateWarmupCallback,
 MetricAverageCallback) = callbacks_of(keras, __name__, functions.broadcast_variables)

__all__ = ["BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback", "LearningRateWarmupCallback",
           "MetricAverageCallback"]
