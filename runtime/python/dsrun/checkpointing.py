"""DeepSpeed's ``deepspeed.checkpointing``: recompute activations in the backward pass."""

from __future__ import annotations

import torch.utils.checkpoint

from .config import read_config, section

_configured = False


def configure(mpu_=None, deepspeed_config=None, partition_activations=None,
              contiguous_checkpointing=None, num_checkpoints=None, checkpoint_in_cpu=None,
              synchronize=None, profile=None) -> None:
    """Accepts DeepSpeed's arguments; those that would store activations elsewhere are refused.

    An argument that is None has its value from `deepspeed_config`, a dictionary or a path.
    """
    global _configured
    config = {} if deepspeed_config is None else read_config(None, deepspeed_config, None)
    asked = section(config, "activation_checkpointing")
    for name, key, given in (
            ("partition_activations", "partition_activations", partition_activations),
            ("contiguous_checkpointing", "contiguous_memory_optimization", contiguous_checkpointing),
            ("checkpoint_in_cpu", "cpu_checkpointing", checkpoint_in_cpu)):
        if asked.get(key) if given is None else given:
            raise NotImplementedError(f"checkpointing.configure({name}=True) of Python modules")
    _configured = True


def is_configured() -> bool:
    return _configured


def checkpoint(function, *args):
    """Runs function(*args) and recomputes it in the backward pass (PyTorch's, non-reentrant)."""
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False)
