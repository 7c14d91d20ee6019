"""What initialize() refuses of a module and its config."""

from __future__ import annotations

import json

from torch import nn

from . import _native, comm
from .config import section, training_dtype


def _find_difference(key: str, one, other) -> tuple | None:
    """Returns (key, value, other value) of a key with different values, None without one."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            full = f"{key}.{name}" if key else name
            found = _find_difference(full, one.get(name), other.get(name))
            if found is not None:
                return found
        return None
    return None if one == other or key.endswith("path") else (key, one, other)


def check_same_on_ranks(config: dict) -> None:
    """Refuses a config that is another one on another rank; paths may differ. Collective.

    `config` has values of JSON alone.
    """
    if comm.get_world_size() == 1:
        return
    first, *others = _native.gather_texts(json.dumps(config)) or [""]
    error = ""
    for rank, text in enumerate(others, 1):
        found = _find_difference("", json.loads(first), json.loads(text))
        if found is not None:
            key, one, other = found
            error = (f"{key} of the config is {json.dumps(one)} on rank 0 and {json.dumps(other)} on "
                     f"rank {rank}: give initialize() one config and one optimizer on all ranks")
            break
    error = _native.broadcast_text(error)
    if error:
        raise ValueError(error)


def _loses_writes(config: dict) -> str:
    """Returns where writes of a forward pass into parameters are lost; "" if they are kept."""
    dtype = training_dtype(config)
    if dtype is not None:
        return f"in {str(dtype).removeprefix('torch.')}"
    zero = section(config, "zero_optimization")
    on_nvme = section(zero, "offload_param").get("device") == "nvme"
    if zero.get("stage") == 3 and (comm.get_world_size() > 1 or on_nvme):
        return "at ZeRO stage 3"
    return ""


def check_renormalised(module: nn.Module, config: dict) -> None:
    """Refuses trained embeddings with max_norm where the engine would lose what they write."""
    lost = _loses_writes(config)
    for name, part in module.named_modules() if lost else ():
        if (isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.max_norm is not None
                and part.weight.requires_grad):
            raise NotImplementedError(
                f"{name or type(part).__name__} has max_norm={part.max_norm}: its forward writes "
                f"into its weight, which is lost {lost}; train in fp32 at stage 2, or set max_norm to "
                "None and clip the norms between steps within zero.GatheredParameters")
