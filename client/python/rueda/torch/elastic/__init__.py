"""Training that can begin again from a state, after an error or when hosts have changed.

    state = hvd.elastic.TorchState(model, optimizer, epoch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 10):
            ...
            state.commit()

    train(state)

The first death still ends a job. Until jobs survive a death, training recovers only from errors that all processes survive."""

from .._errors import HorovodInternalError, HostsUpdatedInterrupt
from ._run import run
from ._sampler import ElasticSampler
from ..._elastic._state import ObjectState, State
from ._torch_state import TorchState

__all__ = ["ElasticSampler", "HorovodInternalError", "HostsUpdatedInterrupt", "ObjectState", "State", "TorchState",
           "run"]
