"""Tests what a framework sees that asks for gloo and gets Rueda: RUEDA_TORCH_REPLACES=gloo, and a first group of "gloo"."""

import os
import subprocess
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from distributed_collectives import end  # noqa: F401
from torch_support import expect_error

import rueda.distributed
from rueda.distributed import _backend, _replaces


def is_ours(group):
    return isinstance(group, _backend.ProcessGroupRueda)


def case_the_first_group():
    assert is_ours(dist.group.WORLD)
    assert dist.get_backend() == dist.distributed_c10d.get_backend(dist.group.WORLD) == dist.Backend.GLOO
    dist.all_reduce(total := torch.ones(3))
    assert total[0] == dist.get_world_size()


def case_new_groups():
    rank, size = dist.get_rank(), dist.get_world_size()
    for named in ({"backend": "gloo"}, {"backend": dist.Backend.GLOO}, {}, {"backend": "rueda"}):
        group = dist.new_group(timeout=timedelta(seconds=30), **named)
        assert is_ours(group) and dist.get_backend(group) == "gloo", named
    group = dist.new_group(list(range(size)), timedelta(seconds=30), "GLOO")
    assert is_ours(group) and group.seconds == 30
    inner = dist.new_group([0], backend="gloo")
    assert (inner == dist.GroupMember.NON_GROUP_MEMBER) == (rank > 0)
    if rank > 0:
        expect_error((ValueError, RuntimeError), "group", dist.get_backend, inner)


def case_a_backend_of_several_names():
    """A group in Python has one backend for all devices, so it takes the place of gloo alone."""
    if not torch.__version__.startswith("1."):
        assert is_ours(dist.new_group(backend="cpu:gloo,cuda:gloo"))
    for others in ("cpu:gloo,cuda:nccl", "nccl", None):
        assert _replaces._instead_of(others, "gloo") is others


def case_pytorchs_monitored_barrier():
    """It is for gloo alone, and asks get_backend()."""
    dist.monitored_barrier(timeout=timedelta(seconds=30))
    if dist.get_rank() == 0 and dist.get_world_size() > 1:
        expect_error(RuntimeError, r"Rank \d failed to pass monitoredBarrier in 0.5 s", dist.monitored_barrier,
                     timeout=timedelta(seconds=0.5))


def case_objects_and_again():
    names = [None] * dist.get_world_size()
    dist.all_gather_object(names, f"rank {dist.get_rank()}")
    assert names == [f"rank {rank}" for rank in range(len(names))]
    rueda.distributed.install()
    dist.destroy_process_group()
    dist.init_process_group(backend="gloo", timeout=timedelta(seconds=60))
    assert is_ours(dist.group.WORLD)


def case_other_names_are_refused():
    expect_error(ValueError, "as_='nccl' must be \"gloo\"", rueda.distributed.install, "nccl")
    done = subprocess.run([sys.executable, "-c", "import rueda.distributed"], env={**os.environ, "RUEDA_TORCH_REPLACES": "Gloo "},
                          capture_output=True, text=True, check=False)
    assert "RUEDA_TORCH_REPLACES='Gloo ' must be \"gloo\"" in done.stderr, done.stderr
