"""Tests that FSDP, both forms, and DTensor give on Rueda what they give on Gloo. It needs PyTorch 2."""

import shutil
import tempfile

import torch
import torch.distributed as dist
from distributed_collectives import end, gloo  # noqa: F401
from torch.distributed import checkpoint
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

STEPS = 50


def net(dtype):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
                               torch.nn.Linear(64, 3)).to(dtype)


def losses(model, dtype):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(100 + dist.get_rank())
    found = []
    for _ in range(STEPS):
        inputs, labels = torch.randn(16, 20, dtype=dtype), torch.randint(0, 3, (16,))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        found.append(loss.detach().double())
    return torch.stack(found)


def expect_alike(wrap):
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        ours, theirs = (losses(wrap(net(dtype), group), dtype) for group in (dist.group.WORLD, gloo()))
        assert ((ours - theirs).abs() / theirs.abs()).max().item() <= tolerance, (dtype, ours, theirs)


def case_fsdp():
    expect_alike(lambda model, group: FullyShardedDataParallel(model, process_group=group, use_orig_params=True,
                                                               device_id=torch.device("cpu")))


def case_fully_shard():
    def wrap(model, group):
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    expect_alike(wrap)


def case_distributed_tensors():
    whole = torch.arange(32.0).view(8, 4)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tensor = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(tensor.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal(tensor.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    assert tensor.sum().full_tensor().item() == whole.sum().item()
    if dist.get_world_size() == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        assert torch.equal(distribute_tensor(whole, mesh, [Shard(0), Shard(1)]).full_tensor(), whole)


def case_a_group_takes_tensors_of_the_cpu_before_its_first_call():
    group = dist.new_group()
    assert torch.device("cpu") in group._device_types
    group.get_group_store().set(f"here {dist.get_rank()}", "yes")  # there once was no store
    assert all(group.get_group_store().get(f"here {rank}") == b"yes" for rank in range(dist.get_world_size()))
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, 0)
    checkpoint.async_save({"ones": torch.ones(3)}, checkpoint_id=folder[0], process_group=group).result()
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])


def case_a_checkpoint_is_saved_beside_the_training():
    """Saving wants a group that takes tensors of the CPU."""
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Linear(3, 2)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, 0)
    checkpoint.async_save({"model": model.state_dict()}, checkpoint_id=folder[0]).result()
    read = {"model": torch.nn.Linear(3, 2).state_dict()}
    checkpoint.load(read, checkpoint_id=folder[0])
    assert all(torch.equal(read["model"][name], value) for name, value in model.state_dict().items())
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])
