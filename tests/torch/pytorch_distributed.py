#!/usr/bin/python3
"""PyTorch's own tests of torch.distributed (torch.testing._internal.distributed), as they are installed, on the backend
"rueda". $RUEDA_SOCKET is a daemon's.

  pytorch_distributed.py [unittest's arguments, such as DistributedTest.test_all_reduce_sum]

Many of the tests ask for a backend by its name. With BACKEND=gloo or BACKEND=mpi in the environment they are told that
name, and get Rueda where they ask for it.
"""

import multiprocessing
import os
import sys
import tempfile
import types
import unittest

os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("BACKEND", "rueda")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
os.environ.setdefault("INIT_METHOD", "env://")

import torch.distributed as dist  # noqa: E402
from torch.distributed import distributed_c10d  # noqa: E402

import rueda.distributed  # noqa: E402, F401

# One module of the tests reads what only PyTorch's own source tree has.
try:
    import torch._utils_internal  # noqa: F401
except ImportError:
    sys.modules["torch._utils_internal"] = types.ModuleType("torch._utils_internal")

from torch.testing._internal.common_distributed import DistTestCases  # noqa: E402
from torch.testing._internal.common_utils import run_tests  # noqa: E402

# Decorators read this while the tests are imported.
for feature in ("ddp", "subgroup"):
    DistTestCases.backend_feature[feature].add("rueda")

BACKEND = os.environ["BACKEND"]


def give_rueda(module, name):
    """Makes whoever asks the function for $BACKEND get Rueda."""
    theirs = getattr(module, name)

    def ours(*arguments, **named):
        arguments = ["rueda" if word == BACKEND else word for word in arguments]
        return theirs(*arguments, **{key: "rueda" if word == BACKEND else word for key, word in named.items()})

    setattr(module, name, ours)


if BACKEND != "rueda":
    for function in ("init_process_group", "new_group"):
        give_rueda(distributed_c10d, function)
        setattr(dist, function, getattr(distributed_c10d, function))
    distributed_c10d.get_backend = dist.get_backend = lambda group=None: BACKEND
    dist.monitored_barrier = rueda.distributed.monitored_barrier  # PyTorch's own is for backends in C++

from torch.testing._internal.distributed.distributed_test import DistributedTest as Tests  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402
from torch.testing._internal.distributed.distributed_test import TestDistBackend  # noqa: E402

distributed_test.PROFILING_SUPPORTED_BACKENDS = distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS = []


# Debian's PyTorch 1.13 cannot import this under Python 3.11, and the tests switch it on.
try:
    from torch.nn.parallel import _replicated_tensor_ddp_utils
    _replicated_tensor_ddp_utils._set_ddp_with_replicated_tensor = lambda value: None
except ImportError:
    pass

# These tests are left out, by the backend that they ask for.
LEFT_OUT = {
    "test_ddp_logging_data_cpu": ("gloo", "compares a name with the one that DDP has from the group itself"),
    "test_get_backend": ("gloo", "asks for the name of a group that the rank is not in; that question is answered here"),
}


class DistributedTest(TestDistBackend, Tests._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(multiprocessing.get_context("fork").Process)  # spawned processes import everything anew


for test, (asked_for_as, reason) in LEFT_OUT.items():
    if BACKEND == asked_for_as:
        setattr(DistributedTest, test, unittest.skip(reason)(getattr(DistributedTest, test)))

if __name__ == "__main__":
    run_tests()
