"""Training that can begin again from a state, after an error or when hosts have changed.

    state = hvd.elastic.TensorFlowState(variables=[*model.weights, *optimizer.variables], batch=0)

    @hvd.elastic.run
    def train(state):
        while state.batch < 1000:
            step()
            state.batch += 1
            state.commit()

    train(state)

docs/elastic.md has the whole."""

from .._elastic._state import ObjectState, State
from .._keras._elastic import ModelState
from .._tensorflow import _objects
from .._tensorflow._elastic import TensorFlowState, run
from .._tensorflow._errors import HorovodInternalError, HostsUpdatedInterrupt


class TensorFlowKerasState(ModelState):
    """The state of a Keras model, its optimizer, and any other object that can be pickled, given by name, as epoch=0.

    Args:
        model: the model, which has been built.
        optimizer: its optimizer; model.optimizer if None.
        backend: not used.

    Raises:
        ValueError: the model has not been built.
    """

    _functions = _objects


__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run"]
