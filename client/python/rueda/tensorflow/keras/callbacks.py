"""Callbacks for model.fit() on several ranks."""

from __future__ import annotations

from tensorflow import keras

from ..._keras._callbacks import callbacks_of
from ..._tensorflow._objects import broadcast_variables

(BestModelCheckpoint, BroadcastGlobalVariablesCallback, LearningRateScheduleCallback, LearningRateWarmupCallback,
 MetricAverageCallback) = callbacks_of(keras, __name__, broadcast_variables)

__all__ = ["BestModelCheckpoint", "BroadcastGlobalVariablesCallback", "LearningRateScheduleCallback", "LearningRateWarmupCallback",
           "MetricAverageCallback"]
