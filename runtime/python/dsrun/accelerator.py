"""DeepSpeed's accelerator: the device of this rank's modules."""

from __future__ import annotations

import contextlib
import functools
import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import comm


def _read_resident_bytes() -> int:
    """Returns the bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read_host_bytes(key: str) -> int:
    """Returns a row of /proc/meminfo."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    raise KeyError(f"/proc/meminfo has no {key}")


class Accelerator:
    """The device of Python modules, by the names of DeepSpeed's accelerator.

    On the CPU, its memory is that of the process, and its peak the most at a call since
    reset_peak_memory_stats, as with DeepSpeed.
    """

    def __init__(self):
        self._peak = 0

    def device_name(self, device_index: int | None = None) -> str:
        """The kind of device, "cpu" or "cuda", with the index if one is given: "cuda:1"."""
        kind = comm.get_device().type
        return kind if kind == "cpu" or device_index is None else f"{kind}:{device_index}"

    def current_device_name(self) -> str:
        """The rank's device, such as "cpu" or "cuda:0"."""
        return str(comm.get_device())

    def current_device(self) -> int | str:
        """The index of the rank's GPU; "cpu" without one."""
        device = comm.get_device()
        return "cpu" if device.type == "cpu" else device.index

    def device(self, device_index: int | None = None) -> torch.device:
        """`device_name` as PyTorch's device."""
        return torch.device(self.device_name(device_index))

    def device_count(self) -> int:
        """The GPUs that PyTorch sees; 1 on the CPU."""
        return torch.cuda.device_count() if self._is_gpu() else 1

    def _is_gpu(self) -> bool:
        return comm.get_device().type == "cuda"

    def communication_backend_name(self) -> str:
        """The backend of torch.distributed for tensors of the device."""
        return "nccl" if self._is_gpu() else "gloo"

    def is_available(self) -> bool:
        """Returns True: there is always a CPU."""
        return True

    def is_synchronized_device(self) -> bool:
        """Whether operations have finished when they return, as on the CPU."""
        return not self._is_gpu()

    def is_bf16_supported(self) -> bool:
        """Whether the device computes in bf16, which not every GPU does."""
        return not self._is_gpu() or torch.cuda.is_bf16_supported()

    def is_fp16_supported(self) -> bool:
        """Returns True, for CPUs and GPUs."""
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        """The dtypes in which an engine trains."""
        return [torch.float, torch.bfloat16, torch.float16]

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is on a device of the rank's kind."""
        return tensor.device.type == comm.get_device().type

    def pin_memory(self, tensor: torch.Tensor, align_bytes: int = 1) -> torch.Tensor:
        """A copy for transfers to a GPU; the tensor itself where there is none."""
        return tensor.pin_memory() if self._is_gpu() else tensor

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is in pinned host memory, from which GPUs copy directly."""
        return tensor.is_pinned()

    def manual_seed(self, seed: int) -> torch.Generator:
        """Seeds PyTorch's generators of all devices; returns that of the CPU."""
        return torch.manual_seed(seed)  # of all devices

    manual_seed_all = manual_seed

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        """The state of the current device's generator, for `set_rng_state`."""
        return torch.cuda.get_rng_state() if self._is_gpu() else torch.get_rng_state()

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        """Restores what `get_rng_state` has returned on the current device."""
        (torch.cuda if self._is_gpu() else torch).set_rng_state(new_state)

    def set_device(self, device_index: int) -> None:
        """Does nothing: a rank has one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Waits for the GPU; operations of the CPU are finished when they return."""
        if self._is_gpu():
            torch.cuda.synchronize()

    def empty_cache(self) -> None:
        """Frees the GPU memory that PyTorch caches; it caches no memory of the CPU."""
        if self._is_gpu():
            torch.cuda.empty_cache()

    def _resident(self) -> int:
        resident = _read_resident_bytes()
        self._peak = max(self._peak, resident)
        return resident

    def memory_allocated(self, device_index: int | None = None) -> int:
        """The bytes of the GPU's tensors; on the CPU, those of the process in memory."""
        return torch.cuda.memory_allocated(device_index) if self._is_gpu() else self._resident()

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        """The most bytes of `memory_allocated` since reset_peak_memory_stats."""
        if self._is_gpu():
            return torch.cuda.max_memory_allocated(device_index)
        self._resident()
        return self._peak

    def memory_reserved(self, device_index: int | None = None) -> int:
        """The bytes of the GPU that PyTorch holds; on the CPU, `memory_allocated`."""
        return torch.cuda.memory_reserved(device_index) if self._is_gpu() else self._resident()

    def max_memory_reserved(self, device_index: int | None = None) -> int:
        """The most bytes of `memory_reserved` since reset_peak_memory_stats."""
        if self._is_gpu():
            return torch.cuda.max_memory_reserved(device_index)
        return self.max_memory_allocated()

    memory_cached, max_memory_cached = memory_reserved, max_memory_reserved

    def memory_stats(self, device_index: int | None = None) -> dict[str, int]:
        """PyTorch's statistics of the GPU; of the CPU, the allocated bytes and their peak."""
        if self._is_gpu():
            return torch.cuda.memory_stats(device_index)
        return {"allocated_bytes.all.current": self._resident(),
                "allocated_bytes.all.peak": self._peak}

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        """Makes the present memory the peak."""
        if self._is_gpu():
            torch.cuda.reset_peak_memory_stats(device_index)
        self._peak = 0
        self._resident()

    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats

    def total_memory(self, device_index: int | None = None) -> int:
        """The bytes of the GPU, or of the host."""
        if self._is_gpu():
            return torch.cuda.mem_get_info(device_index)[1]
        return read_host_bytes("MemTotal")

    def available_memory(self, device_index: int | None = None) -> int:
        """The bytes of the GPU, or of the host, that are free."""
        if self._is_gpu():
            return torch.cuda.mem_get_info(device_index)[0]
        return read_host_bytes("MemAvailable")

    def use_host_timers(self) -> bool:
        """Whether the host's clock times operations: without a GPU, it does."""
        return self.is_synchronized_device()

    resolves_data_dependency = handles_memory_backpressure = use_host_timers

    @property
    def Stream(self) -> type[torch.cuda.Stream] | None:
        """The class of GPU streams; None on the CPU."""
        return torch.cuda.Stream if self._is_gpu() else None

    @property
    def Event(self) -> type[torch.cuda.Event] | None:
        """The class of GPU events; None on the CPU."""
        return torch.cuda.Event if self._is_gpu() else None

    def stream(self, stream: torch.cuda.Stream | None) -> contextlib.AbstractContextManager:
        """Within the context, the GPU's work goes to the stream; none on the CPU."""
        return torch.cuda.stream(stream) if self._is_gpu() else contextlib.nullcontext()

    def current_stream(self, device_index: int | None = None) -> torch.cuda.Stream | None:
        """The stream that the GPU's work goes to; None on the CPU."""
        return torch.cuda.current_stream(device_index) if self._is_gpu() else None

    def default_stream(self, device_index: int | None = None) -> torch.cuda.Stream | None:
        """The stream outside of `stream`; None on the CPU."""
        return torch.cuda.default_stream(device_index) if self._is_gpu() else None

    def random(self) -> types.ModuleType:
        """PyTorch's module of generators."""
        return torch.random

    def initial_seed(self) -> int:
        """The seed of the current device's generator."""
        return torch.cuda.initial_seed() if self._is_gpu() else torch.initial_seed()

    def range_push(self, msg: str, domain: Any = None, category: Any = None) -> None:
        """Begins a range of NVTX; there are none on the CPU."""
        if self._is_gpu():
            torch.cuda.nvtx.range_push(msg)

    def range_pop(self, domain: Any = None) -> None:
        """Ends the latest range_push."""
        if self._is_gpu():
            torch.cuda.nvtx.range_pop()

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        """Calls the function: on a GPU, once PyTorch has begun to use it."""
        return torch.cuda._lazy_call(callback) if self._is_gpu() else callback()


@functools.cache
def get_accelerator() -> Accelerator:
    """The process's only accelerator."""
    return Accelerator()
