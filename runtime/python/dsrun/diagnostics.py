"""DeepSpeed's helpers of scripts that look at memory and time."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable

import torch

from . import comm
from .accelerator import get_accelerator, read_host_bytes

_GB = 1 << 30


def see_memory_usage(message: str, force: bool = False) -> None:
    """With force=True, prints the memory of rank 0's device and host, and begins a new peak.

    Otherwise it does nothing. MA is allocated memory and CA that of PyTorch's cache; Max_ are their
    peaks since the last call.
    """
    if not force or comm.get_rank() != 0:
        return
    gc.collect()
    device = get_accelerator()
    print(message)
    print(f"MA {device.memory_allocated() / _GB:.2f} GB "
          f"Max_MA {device.max_memory_allocated() / _GB:.2f} GB "
          f"CA {device.memory_reserved() / _GB:.2f} GB "
          f"Max_CA {device.max_memory_reserved() / _GB:.0f} GB")
    total, available = read_host_bytes("MemTotal"), read_host_bytes("MemAvailable")
    used = total - available
    print(f"CPU Virtual Memory:  used = {used / _GB:.2f} GB, percent = {100 * used / total:.1f}%")
    device.reset_peak_memory_stats()


def instrument_w_nvtx(func: Callable) -> Callable:
    """Makes each call of the function a range of NVTX, on a GPU."""

    @functools.wraps(func)
    def call(*args, **kwargs):
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        device = get_accelerator()
        device.range_push(func.__qualname__)
        try:
            return func(*args, **kwargs)
        finally:
            device.range_pop()

    return call
