"""DeepSpeed's accelerator: the device of this rank's modules."""

from __future__ import annotations

import torch

from . import comm


class Accelerator:
    """The device of Python modules, by the names of DeepSpeed's accelerator."""

    def device_name(self, device_index=None) -> str:
        kind = comm.get_device().type
        return kind if kind == "cpu" or device_index is None else f"{kind}:{device_index}"

    def current_device_name(self) -> str:
        return str(comm.get_device())

    def current_device(self) -> int | str:
        device = comm.get_device()
        return "cpu" if device.type == "cpu" else device.index

    def device(self, device_index=None) -> torch.device:
        return torch.device(self.device_name(device_index))

    def device_count(self) -> int:
        return torch.cuda.device_count() if self._is_gpu() else 1

    def _is_gpu(self) -> bool:
        return comm.get_device().type == "cuda"

    def communication_backend_name(self) -> str:
        return "nccl" if self._is_gpu() else "gloo"

    def is_available(self) -> bool:
        return True

    def is_synchronized_device(self) -> bool:
        return not self._is_gpu()

    def is_bf16_supported(self) -> bool:
        return not self._is_gpu() or torch.cuda.is_bf16_supported()

    def is_fp16_supported(self) -> bool:
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float, torch.bfloat16, torch.float16]

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == comm.get_device().type

    def pin_memory(self, tensor: torch.Tensor, align_bytes: int = 1) -> torch.Tensor:
        """A copy for transfers to a GPU; the tensor itself where there is none."""
        return tensor.pin_memory() if self._is_gpu() else tensor

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.is_pinned()

    def manual_seed(self, seed: int) -> torch.Generator:
        return torch.manual_seed(seed)  # of all devices

    manual_seed_all = manual_seed

    def get_rng_state(self, device_index=None) -> torch.Tensor:
        return torch.cuda.get_rng_state() if self._is_gpu() else torch.get_rng_state()

    def set_rng_state(self, new_state: torch.Tensor, device_index=None) -> None:
        (torch.cuda if self._is_gpu() else torch).set_rng_state(new_state)

    def set_device(self, device_index) -> None:
        """Does nothing: a rank has one device."""

    def synchronize(self, device_index=None) -> None:
        """Waits for the GPU; operations of the CPU are finished when they return."""
        if self._is_gpu():
            torch.cuda.synchronize()

    def empty_cache(self) -> None:
        """Frees the GPU memory that PyTorch caches; it caches no memory of the CPU."""
        if self._is_gpu():
            torch.cuda.empty_cache()
