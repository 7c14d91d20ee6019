"""Small parts of DeepSpeed that others use: enumerations, its accelerator, copies of tensors."""

from __future__ import annotations

import enum

import torch

from . import comm


def clone_tensors_for_torch_save(item, device=torch.device("cpu")):
    """Returns the item with copies of its tensors, which share no storage with other values."""
    if isinstance(item, torch.Tensor):
        return item.detach().clone().to(device)
    if isinstance(item, dict):
        return type(item)((key, clone_tensors_for_torch_save(value, device))
                          for key, value in item.items())
    if isinstance(item, (list, tuple)):
        return type(item)(clone_tensors_for_torch_save(value, device) for value in item)
    return item


def move_to_device(item, device, criterion_func=None):
    """Returns the item with its tensors on the device, also those in lists, tuples and dicts.

    Tensors for which criterion_func is true are moved in place.
    """
    if criterion_func is not None and criterion_func(item):
        item.data = item.to(device).data
        return item
    if isinstance(item, (list, tuple)):
        moved = [move_to_device(value, device, criterion_func) for value in item]
        return moved if isinstance(item, list) else tuple(moved)
    if isinstance(item, dict):
        return {key: move_to_device(value, device, criterion_func)
                for key, value in item.items()}
    return item.to(device)


def tp_model_init(model, tp_size=1, dtype=None, config=None, **kwargs):
    """Refuses: Python modules are not divided between ranks."""
    raise NotImplementedError("tp_model_init: Python modules are trained with data parallelism and "
                              "ZeRO; stage 3 divides their weights between the ranks")


class UlyssesSPAttentionHF:
    """Refuses: Python modules have no sequence parallelism."""

    @classmethod
    def register_with_transformers(cls, *args, **kwargs):
        raise NotImplementedError(
            "UlyssesSPAttentionHF: sequences of Python modules are not divided between ranks. C++ "
            "models have sequence parallelism: dsrun train --sp")


class UlyssesSPDataLoaderAdapter:
    """Refuses, as UlyssesSPAttentionHF."""

    def __init__(self, *args, **kwargs):
        UlyssesSPAttentionHF.register_with_transformers()


class OffloadDeviceEnum(str, enum.Enum):
    none = "none"
    cpu = "cpu"
    nvme = "nvme"


class OffloadStateTypeEnum(str, enum.Enum):
    optim_states = "optim_states"
    hp_params = "hp_params"
    lp_params = "lp_params"
    lp_grads = "lp_grads"
    contiguous_grad_buffer = "contiguous_grad_buffer"


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
