"""DeepSpeed's names for kinds of offload, and its copies of nested tensors."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from . import _native


def clone_tensors_for_torch_save(item: Any, device: torch.device | str = torch.device("cpu")) -> Any:
    """Returns the item with copies of its tensors, which share no storage with other values.

    Looks into lists, tuples, which named ones become as well, and dictionaries.
    """
    if isinstance(item, torch.Tensor):
        return item.detach().clone().to(device)
    if isinstance(item, dict):
        return type(item)((key, clone_tensors_for_torch_save(value, device))
                          for key, value in item.items())
    if isinstance(item, (list, tuple)):
        copies = [clone_tensors_for_torch_save(value, device) for value in item]
        return copies if isinstance(item, list) else tuple(copies)
    return item


def move_to_device(item: Any, device: torch.device | str,
                   criterion_func: Callable[[Any], bool] | None = None) -> Any:
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


class OnDevice(TorchFunctionMode):
    """Within, modules are built on `device`, with floating-point parameters in `dtype`.

    So are tensors of torch.empty, zeros, ones and full without a device of their own, and those of
    torch.Tensor(sizes). With the device "meta" they have no values.
    """

    _constructors = (torch.empty, torch.zeros, torch.ones, torch.full)

    def __init__(self, dtype: torch.dtype, device: torch.device | str = "meta", enabled: bool = True):
        super().__init__()
        self.dtype, self.device, self.enabled = dtype, device, enabled

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func not in self._constructors:
            return func(*args, **kwargs)
        if kwargs.get("device") is None:
            kwargs["device"] = self.device
        return self._cast(func(*args, **kwargs))

    def __enter__(self):
        if not self.enabled:
            return self

        def make(cls, *args, **kwargs):
            if cls is torch.Tensor and not kwargs and all(isinstance(size, int) for size in args):
                return self._cast(torch.empty(args or 0, device=self.device))
            return self._new(cls, *args, **kwargs)

        self._new = torch.Tensor.__new__
        torch.Tensor.__new__ = make
        return super().__enter__()

    def __exit__(self, *error):
        if self.enabled:
            torch.Tensor.__new__ = self._new
            super().__exit__(*error)


class OffloadDeviceEnum(str, enum.Enum):
    """Where ds_config's offload_param and offload_optimizer keep state."""

    none = "none"
    cpu = "cpu"
    nvme = "nvme"


OffloadStateTypeEnum = enum.Enum(
    "OffloadStateTypeEnum", {name: name for name in _native.StateKind.__members__}, type=str)
