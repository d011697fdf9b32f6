"""Implements the state of a Keras model for elastic training, and callbacks that commit it, to be mixed into the Callback of a Keras."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from .._elastic._variables import VariablesState
from ._callbacks import Logs, is_built, make_callback, settle, variables_of


def _build(optimizer: Any, model: Any) -> None:
    """Makes the optimizer's variables, which survivors have and newcomers would not have yet."""
    if hasattr(optimizer, "build"):
        if not is_built(optimizer):
            optimizer.build(model.trainable_variables)
    elif hasattr(optimizer, "_create_all_weights"):  # Keras 2's legacy ones
        optimizer._create_all_weights(model.trainable_variables)


class ModelState(VariablesState):
    """The state of a Keras model and its optimizer, and of any other object that can be pickled, given by name, as epoch=0.

    Args:
        model: the model, which has been built.
        optimizer: its optimizer; model.optimizer if None. A model that has not been compiled may have none.
        backend: not used.

    Raises:
        ValueError: the model has not been built.
    """

    _functions: Any  # has broadcast_variables() and broadcast_object()

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not model.built or not model.weights:
            raise ValueError("the model has no weights yet, and ranks that come later could not be given them; call model.build(input_shape) "
                             "before")
        self.model = model
        self.optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        if self.optimizer is not None:
            _build(self.optimizer, model)
        super().__init__(self._variables, self._functions.broadcast_variables, self._functions.broadcast_object, **kwargs)

    def save(self) -> None:
        """Keeps the values in memory."""
        settle(self.model)
        super().save()

    def restore(self) -> None:
        """Goes back to what save() kept."""
        if hasattr(self.model, "_jax_state_synced"):
            self.model._jax_state_synced = True  # what fit() had when it failed is worth nothing, or gone
        super().restore()

    def _sync_from(self, root: int) -> None:
        settle(self.model)
        super()._sync_from(root)

    def _variables(self) -> List[Any]:
        return [*self.model.weights, *(variables_of(self.optimizer) if self.optimizer is not None else [])]


class Committing:
    """Commits `state` after every `batches_per_commit` batches, and at the end of each epoch. It comes after the callbacks that
    update the state.

    Raises:
        ValueError: `batches_per_commit` is less than 1.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        if batches_per_commit < 1:
            raise ValueError(f"batches_per_commit={batches_per_commit} must be 1 or more")
        self.state, self.batches_per_commit = state, batches_per_commit
        self._left = batches_per_commit

    def on_train_begin(self, logs: Logs = None) -> None:
        self._left = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._left -= 1
        if self._left == 0:
            self.state.commit()
            self._left = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.state.commit()


class CountingBatches:
    """Keeps the number of the batch in `state.batch`, which is 0 between epochs."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.state.batch = 0


class CountingEpochs:
    """Keeps the number of epochs that have ended in `state.epoch`. fit() may count from there (initial_epoch=state.epoch), or have
    only the epochs that are left."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._ahead: Optional[int] = None  # of what fit() counts

    def on_train_begin(self, logs: Logs = None) -> None:
        self._ahead = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        if self._ahead is None:
            self._ahead = self.state.epoch - epoch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        assert self._ahead is not None
        self.state.epoch = epoch + 1 + self._ahead


def elastic_of(keras: Any, module: str, functions: Any) -> Tuple[Any, ...]:
    """Returns KerasState, CommitStateCallback, UpdateBatchStateCallback and UpdateEpochStateCallback for a Keras.

    Args:
        keras: the module.
        module: the name of the module that they are in.
        functions: has broadcast_variables() and broadcast_object().
    """
    base = keras.callbacks.Callback
    state = type("KerasState", (ModelState,), {"__doc__": ModelState.__doc__, "__module__": module, "_functions": functions})
    return (state, make_callback(Committing, base, "CommitStateCallback", module),
            make_callback(CountingBatches, base, "UpdateBatchStateCallback", module),
            make_callback(CountingEpochs, base, "UpdateEpochStateCallback", module))
