"""Names the collectives of a compiled program. A name must be the same on all ranks, and at each compilation of the same function,
so it comes from the function's name and from the call's place in the program, not from what the process has compiled before."""

from __future__ import annotations

import collections
import hashlib
from typing import Any, Counter, Optional

# librueda allows 255; a member of a group gets an ending such as _12of345.
_MOST_BYTES = 230
_KEY = "rueda.jax"


def name_in_program(module_context: Any, kind: str, name: Optional[str]) -> str:
    """Returns the name of one more collective of the program that is being lowered.

    Args:
        module_context: JAX's context of the lowering, which all calls of one program have in common.
        kind: what the collective does, such as "allreduce".
        name: the user's name. The second call under it in a program, such as that of a derivative, becomes "NAME.2". If None, the
            name is the program's, the kind and a number, as in "jit_step.allreduce.1".
    """
    # JAX keeps a dictionary of what it has lowered in this module; ours lives in it, as long as it does.
    counts: Counter[str] = module_context.cached_primitive_lowerings.setdefault(_KEY, collections.Counter())
    program = module_context.module.operation.attributes["sym_name"].value
    base = _shortened(f"{program}.{kind}" if name is None else name)
    counts[base] += 1
    return f"{base}.{counts[base]}" if name is None or counts[base] > 1 else base


def _shortened(name: str) -> str:
    """Returns the name, or for a long one its beginning and a hash of the whole."""
    raw = name.encode()
    if len(raw) <= _MOST_BYTES:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:16]
    return raw[:_MOST_BYTES - len(digest) - 1].decode("utf-8", "ignore") + "-" + digest
