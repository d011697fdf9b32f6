"""A rank of training_test.py: trains one of torchvision's networks, and prints the losses of its batches as JSON, and how
long a step takes, in ms.

    train_rank.py SIDE MODEL DEVICE STEPS RANKS

SIDE: alone (one process that computes what all RANKS would, one after the other), ddp (backend "rueda"), hvd
(DistributedOptimizer), apart (each rank by itself: what a step takes where nothing is communicated). Each rank has pictures of its own; rank r's losses are the same on all sides, but for rounding."""

import json
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torchvision  # noqa: E402

BATCH, PIXELS, CLASSES = 4, 64, 10


def batches_of(rank, steps, device):
    generator = torch.Generator().manual_seed(1000 + rank)
    for _ in range(steps):
        pictures = torch.randn(BATCH, 3, PIXELS, PIXELS, generator=generator)
        yield pictures.to(device), torch.randint(0, CLASSES, (BATCH,), generator=generator).to(device)


def loss_of(model, batch):
    pictures, labels = batch
    return F.cross_entropy(model(pictures), labels)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def train_alone(model, device, steps, ranks):
    """Returns the losses by rank."""
    optimizer, found = sgd(model), [[] for _ in range(ranks)]
    for batches in zip(*(batches_of(rank, steps, device) for rank in range(ranks))):
        optimizer.zero_grad()
        for rank, batch in enumerate(batches):
            loss = loss_of(model, batch)
            (loss / ranks).backward()
            found[rank].append(loss.item())
        optimizer.step()
    return found


def train(model, optimizer, device, steps, rank):
    """Returns losses, and the median of a step's ms except for the first steps."""
    losses, ends = [], []
    for batch in batches_of(rank, steps, device):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())  # waits for everything in the stream
        ends.append(time.monotonic())
    return losses, 1e3 * statistics.median(after - before for before, after in zip(ends[1:], ends[2:]))


def main():
    side, name, device, steps, ranks = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    torch.manual_seed(5)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    model = getattr(torchvision.models, name)(num_classes=CLASSES).to(device)
    if side == "alone":
        print(json.dumps(train_alone(model, device, steps, ranks)), flush=True)
        return
    import rueda.torch as hvd
    hvd.init()
    if side == "ddp":
        import torch.distributed as dist

        import rueda.distributed  # noqa: F401
        dist.init_process_group("rueda")
        # Each rank has statistics of batches of its own, as when the ranks' batches are computed one after the other.
        wrapped = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True)
        losses, step_ms = train(wrapped, sgd(model), device, steps, hvd.rank())
        dist.destroy_process_group()
    elif side == "apart":
        losses, step_ms = train(model, sgd(model), device, steps, hvd.rank())
    else:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
        losses, step_ms = train(model, optimizer, device, steps, hvd.rank())
    submissions = hvd.allreduce(torch.tensor(float(_on_device())), op=hvd.Min, name="submissions").item()
    print(json.dumps({"rank": hvd.rank(), "losses": losses, "on_device": submissions, "step_ms": step_ms}), flush=True)
    hvd.shutdown()


def _on_device():
    import rueda
    return rueda.device_stats().submissions


if __name__ == "__main__":
    main()
