"""Tells jax.distributed.initialize() where ruedarun's processes are, so that it needs no arguments.

JAX asks subclasses of jax._src.clusters.ClusterEnv, which is private, and may change with any release: then this module does nothing,
and initialize() wants its arguments. There is no entry point for it; importing rueda.jax is what makes the class known."""

from __future__ import annotations

import os
from typing import Any, Optional

_NEEDED = ("RUEDA_JOB_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _register() -> bool:
    try:
        from jax._src.clusters import ClusterEnv
    except ImportError:
        return False

    class RuedaCluster(ClusterEnv):
        """The job that ruedarun started: node 0 has JAX's coordinator, at the port that ruedarun chose for such a purpose
        ($MASTER_PORT), or at $JAX_COORDINATOR_PORT where PyTorch uses that one."""

        name: str = "rueda"

        @classmethod
        def is_env_present(cls) -> bool:
            return all(os.environ.get(name) for name in _NEEDED)

        @classmethod
        def get_coordinator_address(cls, timeout_secs: Optional[int], override_coordinator_port: Optional[str] = None,
                                    **_: Any) -> str:
            port = override_coordinator_port or os.environ.get("JAX_COORDINATOR_PORT") or os.environ["MASTER_PORT"]
            host = os.environ["MASTER_ADDR"]
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["WORLD_SIZE"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["RANK"])

        @classmethod
        def get_local_process_id(cls) -> Optional[int]:
            local_rank = os.environ.get("LOCAL_RANK")
            return None if local_rank is None else int(local_rank)

    # The first class whose environment is there is taken, and Slurm's may be there, too, around ruedarun.
    known = getattr(ClusterEnv, "_cluster_types", None)
    if isinstance(known, list) and RuedaCluster in known:
        known.remove(RuedaCluster)
        known.insert(0, RuedaCluster)
        return True
    return False


IS_REGISTERED = _register()
