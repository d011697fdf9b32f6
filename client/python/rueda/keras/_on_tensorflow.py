"""Has what rueda.keras is made of where Keras is on TensorFlow."""

from .._keras._values import allgather, allreduce, broadcast, reducescatter
from .._tensorflow._compression import Compression
from .._tensorflow._elastic import run
from .._tensorflow._gradients import GradientReducer
from .._tensorflow._job import cuda_built, init
from .._tensorflow._objects import broadcast_global_variables, broadcast_object, broadcast_variables

__all__ = ["Compression", "GradientReducer", "allgather", "allreduce", "broadcast", "broadcast_global_variables", "broadcast_object",
           "broadcast_variables", "cuda_built", "init", "reducescatter", "run"]
