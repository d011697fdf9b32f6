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

from tensorflow import keras

from ..._elastic._state import ObjectState, State
from ..._keras._elastic import Committing, CountingBatches, CountingEpochs, TensorFlowKerasState
from ..._tensorflow._elastic import run
from ..._tensorflow._errors import HorovodInternalError, HostsUpdatedInterrupt


class KerasState(TensorFlowKerasState):
    """The state of a Keras model, its optimizer, and any other object that can be pickled, given by name, as epoch=0.

    Args:
        model: the model, which has been built.
        optimizer: its optimizer; model.optimizer if None.
        backend: not used.

    Raises:
        ValueError: the model has not been built.
    """


class CommitStateCallback(Committing, keras.callbacks.Callback):  # type: ignore[misc]
    """Commits `state` after every `batches_per_commit` batches, and at the end of each epoch. It comes after the callbacks that
    update the state."""


class UpdateBatchStateCallback(CountingBatches, keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the number of the batch in `state.batch`, which is 0 between epochs."""


class UpdateEpochStateCallback(CountingEpochs, keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the number of epochs that have ended in `state.epoch`. fit() may count from there (initial_epoch=state.epoch), or have
    only the epochs that are left."""


__all__ = ["CommitStateCallback", "HorovodInternalError", "HostsUpdatedInterrupt", "KerasState", "ObjectState", "State",
           "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
