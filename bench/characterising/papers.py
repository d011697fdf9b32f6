"""Holds the numbers that the papers' texts give for their figures, each with its figure and section. What stands in a figure alone,
and in no sentence, is not here: nothing is read off a picture."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A number, or a range of two. `figure` and `section` are the text's; texts without numbered sections have headings."""

    text: str
    figure: str
    section: str
    what: str
    unit: str
    low: float
    high: float


def _one(text, figure, section, what, unit, value):
    return Published(text, figure, section, what, unit, value, value)


PUBLISHED = (
    _one("Uber", "1", "Going distributed", "gRPC servers, Inception V3 and ResNet-101, 128 GPUs (\"nearly half\" is lost)", "efficiency, %", 50),
    _one("Uber", "6", "Horovod benchmarks", "Horovod over 25 Gbit/s TCP, Inception V3 and ResNet-101, 128 GPUs", "efficiency, %", 88),
    _one("Uber", "6", "Horovod benchmarks", "Horovod over gRPC servers, 128 GPUs (\"about twice\")", "ratio", 2.0),
    Published("Uber", "7", "Horovod benchmarks", "RDMA over TCP, Inception V3 and ResNet-101", "ratio", 1.03, 1.04),
    _one("Uber", "7", "Horovod benchmarks", "RDMA over TCP, VGG-16", "ratio", 1.30),
    _one("Uber", "none", "Tensor Fusion", "fusion over TCP, many layers, at most", "ratio", 1.65),
    _one("Baidu", "none", "The Communication Problem", "all to one and back, 1.2 GB at 1 GB/s, 2 GPUs", "s added", 1.2),
    _one("Baidu", "none", "The Communication Problem", "all to one and back, 1.2 GB at 1 GB/s, 10 GPUs", "s added", 10.8),
    Published("Baidu", "none", "Applying the Allreduce to Deep Learning", "300 M parameters, 40 GPUs on 5 nodes, 6 GB/s", "ms a step", 650, 700),
    _one("Baidu", "none", "Applying the Allreduce to Deep Learning", "300 M parameters, 1 GPU", "ms a step", 370),
    _one("Awan", "2", "III-D", "best batch of ResNet-50 on one GPU", "images", 64),
    _one("Awan", "6", "V-C", "MPI-Opt over MPI, up to 128 KB, 16 GPUs", "ratio", 4.1),
    _one("Awan", "6", "V-C", "MPI-Opt over NCCL2, 8 bytes, 16 GPUs", "ratio", 17),
    _one("Awan", "6", "V-C", "MPI-Opt over NCCL2, large, 16 GPUs, at most", "ratio", 1.4),
    _one("Awan", "7", "VIII", "Horovod-MPI-Opt, ResNet-50, 16 nodes (RI2)", "efficiency, %", 98),
    _one("Awan", "8", "VIII", "Horovod-MPI-Opt, ResNet-50, 64 nodes (Owens)", "efficiency, %", 90),
    _one("Awan", "9", "VI-D", "Horovod-MPI, MobileNet, 128 nodes (Piz Daint)", "efficiency, %", 16),
    _one("Awan", "9", "VI-D", "Horovod-MPI, ResNet-50, 128 nodes (Piz Daint)", "efficiency, %", 71),
    _one("Awan", "9", "VI-D", "Horovod-MPI, NASNet-large, 128 nodes (Piz Daint)", "efficiency, %", 92),
    _one("Awan", "9", "VIII", "Horovod-MPI over gRPC, ResNet-50, 128 nodes", "ratio", 1.8),
    _one("Awan", "9", "VIII", "Horovod-MPI over gRPC, MobileNet, 128 nodes", "ratio", 3.2),
    _one("Cambridge", "4", "4.1", "DDP, GoogLeNet, 16 GPUs on 4 nodes", "efficiency, %", 72),
    _one("Cambridge", "4", "4.1", "1-step P+F, GoogLeNet, 16 GPUs on 4 nodes", "efficiency, %", 60),
    _one("Cambridge", "4", "4.1", "2-step P, GoogLeNet, 16 GPUs on 4 nodes", "efficiency, %", 23),
    Published("Cambridge", "6", "4.1", "best fusion buffer, GoogLeNet, 2-step P+F, 16 GPUs", "MB", 4, 64),
)


def published(text, figure, what):
    """Returns the one number of a text's figure whose description begins with `what`."""
    found, = (each for each in PUBLISHED if (each.text, each.figure) == (text, figure) and each.what.startswith(what))
    return found
