"""DeepSpeed's ``deepspeed.checkpointing``: recompute activations in the backward pass."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint

from .config import read_config, section

_configured = False


def configure(mpu_: Any = None, deepspeed_config: dict | str | os.PathLike | None = None,
              partition_activations: bool | None = None, contiguous_checkpointing: bool | None = None,
              num_checkpoints: int | None = None, checkpoint_in_cpu: bool | None = None,
              synchronize: bool | None = None, profile: bool | None = None) -> None:
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
    """Returns whether `configure` has been called in this process."""
    return _configured


def checkpoint(function: Callable, *args: Any) -> Any:
    """Runs function(*args) and recomputes it in the backward pass (PyTorch's, non-reentrant)."""
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False)
