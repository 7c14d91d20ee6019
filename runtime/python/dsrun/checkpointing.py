"""DeepSpeed's ``deepspeed.checkpointing``: recompute activations in the backward pass."""

from __future__ import annotations

import torch.utils.checkpoint

_configured = False


def configure(mpu_=None, deepspeed_config=None, partition_activations=None,
              contiguous_checkpointing=None, num_checkpoints=None, checkpoint_in_cpu=None,
              synchronize=None, profile=None) -> None:
    """Accepts DeepSpeed's arguments; those that would store activations elsewhere are refused."""
    global _configured
    for name, given in (("partition_activations", partition_activations),
                        ("contiguous_checkpointing", contiguous_checkpointing),
                        ("checkpoint_in_cpu", checkpoint_in_cpu)):
        if given:
            raise NotImplementedError(f"checkpointing.configure({name}=True) of Python modules")
    _configured = True


def is_configured() -> bool:
    return _configured


def checkpoint(function, *args):
    """Runs function(*args) and recomputes it in the backward pass (PyTorch's, non-reentrant)."""
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False)
