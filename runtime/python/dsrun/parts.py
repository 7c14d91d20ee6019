"""DeepSpeed's names for kinds of offload, and its copies of nested tensors."""

from __future__ import annotations

import enum

import torch

from . import _native


def clone_tensors_for_torch_save(item, device=torch.device("cpu")):
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


class OffloadDeviceEnum(str, enum.Enum):
    none = "none"
    cpu = "cpu"
    nvme = "nvme"


OffloadStateTypeEnum = enum.Enum(
    "OffloadStateTypeEnum", {name: name for name in _native.StateKind.__members__}, type=str)
