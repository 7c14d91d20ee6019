"""Small parts of DeepSpeed that others use: enumerations, its accelerator, copies of tensors."""

from __future__ import annotations

import enum

import torch


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
        return type(item)(move_to_device(value, device, criterion_func) for value in item)
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
        return "cpu"

    current_device_name = device_name

    def current_device(self) -> str:
        return "cpu"

    def device(self, device_index=None) -> torch.device:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def communication_backend_name(self) -> str:
        return "gloo"

    def is_available(self) -> bool:
        return True

    def is_synchronized_device(self) -> bool:
        return True

    def is_bf16_supported(self) -> bool:
        return True

    def is_fp16_supported(self) -> bool:
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float, torch.bfloat16, torch.float16]

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "cpu"

    def pin_memory(self, tensor: torch.Tensor, align_bytes: int = 1) -> torch.Tensor:
        """The tensor itself: the CPU copies from any memory."""
        return tensor

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.is_pinned()

    def manual_seed(self, seed: int) -> torch.Generator:
        return torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device_index=None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, new_state: torch.Tensor, device_index=None) -> None:
        torch.set_rng_state(new_state)

    def set_device(self, device_index) -> None:
        """Does nothing: a rank has one device."""

    def synchronize(self, device_index=None) -> None:
        """Does nothing: operations of the CPU are finished when they return."""

    def empty_cache(self) -> None:
        """Does nothing: PyTorch caches no memory of the CPU."""
