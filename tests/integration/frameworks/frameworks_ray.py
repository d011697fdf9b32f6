"""Trains with Ray Train on this machine: two workers, which nobody but Ray starts, and one of which may be killed once.

    frameworks_ray.py rueda|gloo FOLDER [--kill]
"""

import os
import signal
import sys
import tempfile

import ray
import ray.train
import ray.train.torch
from frameworks_tools import STEPS, tell

KILLED_AT = 12


def train(settings):
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from frameworks_tools import BATCH, Rows, make_net

    torch.set_num_threads(1)
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    net = ray.train.torch.prepare_model(make_net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    first, losses = 0, []
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        net.module.load_state_dict(state["net"])
        first, losses = state["step"], state["losses"]
    rows = Rows(BATCH * STEPS * size)
    for step in range(first, STEPS):
        died = os.path.join(settings["folder"], "died")
        if settings["kill"] and step == KILLED_AT and rank == 1 and not os.path.exists(died):
            open(died, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        begin = (step * size + rank) * BATCH
        optimizer.zero_grad()
        loss = F.cross_entropy(net(rows.rows[begin:begin + BATCH]), rows.classes[begin:begin + BATCH])
        loss.backward()
        optimizer.step()
        dist.all_reduce(mean := loss.detach().clone())
        losses.append(mean.item() / size)
        metrics = {"losses": losses, "first": first, "backend": [dist.get_backend(), type(dist.group.WORLD).__name__]}
        if (step + 1) % 5 == 0:
            with tempfile.TemporaryDirectory() as folder:
                if rank == 0:
                    torch.save({"net": net.module.state_dict(), "step": step + 1, "losses": losses}, os.path.join(folder, "state.pt"))
                ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder) if rank == 0 else None)


def main():
    backend, folder = sys.argv[1:3]
    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=os.path.join(folder, "ray"), object_store_memory=100_000_000)
    trainer = ray.train.torch.TorchTrainer(
        train, train_loop_config={"folder": folder, "kill": "--kill" in sys.argv},
        torch_config=ray.train.torch.TorchConfig(backend=backend),
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(name="run", storage_path=folder, failure_config=ray.train.FailureConfig(max_failures=1)))
    result = trainer.fit()
    tell("backend", result.metrics["backend"])
    tell("losses", result.metrics["losses"])
    tell("first", result.metrics["first"])
    ray.shutdown()


if __name__ == "__main__":
    main()
