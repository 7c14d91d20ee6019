"""What initialize() refuses of a module and its config."""

from __future__ import annotations

from torch import nn

from . import comm
from .config import section, training_dtype


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
