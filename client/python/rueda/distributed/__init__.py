"""torch.distributed over Rueda.

    import rueda.distributed                            # registers the backend "rueda"
    torch.distributed.init_process_group("rueda")       # under ruedarun, torchrun, or with MASTER_ADDR and RANK set
    model = torch.nn.parallel.DistributedDataParallel(model)

Tensors are on the CPU, or on a GPU (docs/gpu.md). PyTorch 1.13 and 2.x; nothing is compiled. docs/torch_distributed.md is the guide.
"""

import torch.distributed as _dist

from ._backend import create
from ._buckets import install as _install_buckets
from ._elastic import has_lost_membership, hosts_changed, init_elastic_process_group
from ._groups import monitored_barrier
from ._hooks import arena_hook, bf16_wire_hook, fp16_wire_hook
from ._options import Options
from ._replaces import install
from ._replaces import install_from_environment as _install_from_environment
from ._splits import install as _install_splits
from ._stores import install as _install_stores

__all__ = ["Options", "arena_hook", "bf16_wire_hook", "fp16_wire_hook", "has_lost_membership", "hosts_changed",
           "init_elastic_process_group", "install", "monitored_barrier"]


def _register() -> None:
    if "RUEDA" in vars(_dist.Backend):
        return
    try:
        _dist.Backend.register_backend("rueda", create, extended_api=True, devices=["cpu", "cuda"])
    except TypeError:  # PyTorch 1.13's function has no parameter for devices
        _dist.Backend.register_backend("rueda", create, extended_api=True)


_register()
_install_buckets()
_install_splits()
_install_stores()
_install_from_environment()
