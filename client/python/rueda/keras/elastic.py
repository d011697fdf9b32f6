"""Training by model.fit() that can begin again from a state, after an error or when hosts have changed.

    state = hvd.elastic.KerasState(model, epoch=0, batch=0)

    @hvd.elastic.run
    def train(state):
        model.fit(..., initial_epoch=state.epoch, epochs=90, callbacks=[
            hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=10)])

    train(state)

docs/elastic.md has the whole."""

from __future__ import annotations

from .._elastic._state import ObjectState, State
from .._keras._elastic import elastic_of
from ..common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from ._backend import functions, keras

run = functions.run
KerasState, CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback = elastic_of(keras, __name__, functions)

__all__ = ["CommitStateCallback", "HorovodInternalError", "HostsUpdatedInterrupt", "KerasState", "ObjectState", "State",
           "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
