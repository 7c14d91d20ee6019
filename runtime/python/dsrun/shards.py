"""Parameters that are sharded one by one: from zero.Init until an engine takes their values.

Such a parameter is an empty tensor with the attributes of DeepSpeed: ds_id, ds_shape, ds_numel,
ds_status and ds_tensor, this rank's part of the flattened values. All functions that move values
are collective.
"""

from __future__ import annotations

import copy
import ctypes
import enum
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from . import _native, comm

if TYPE_CHECKING:
    from .units import Unit

_ids = itertools.count()


class ZeroParamStatus(enum.Enum):
    """Whether a sharded parameter has its full values on this rank, by DeepSpeed's names."""

    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


class _Heap:
    """Returns memory of full tensors to the system, now and then.

    They come and go between parts that stay; glibc would keep the holes.
    """

    def __init__(self):
        self.freed = 0
        self.trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)  # glibc's

    def count(self, tensor: torch.Tensor) -> None:
        """Counts a tensor that is about to be freed, if it is in host memory."""
        if tensor.device.type != "cpu":
            return
        self.freed += tensor.numel() * tensor.element_size()
        if self.freed >= 32 << 20:
            self.freed = 0
            self.trim(0)


_heap = _Heap()


def is_sharded(parameter: torch.Tensor) -> bool:
    """Returns whether the parameter is one of this module's."""
    return hasattr(parameter, "ds_tensor")


# By id, functions that shard parameters again which have values while zero.Init builds modules.
touched: dict[int, Callable[[], None]] = {}


def settle(parameters: Iterable[torch.Tensor]) -> None:
    """Shards the parameters again that have values because a constructor used them."""
    for parameter in parameters:
        shard_again = touched.pop(id(parameter), None)
        if shard_again is not None:
            shard_again()


def _without_modes(function):
    """Hides the function's use of parameters from zero.Init, which would gather them."""
    @functools.wraps(function)
    def call(*args, **kwargs):
        with torch._C.DisableTorchFunction():
            return function(*args, **kwargs)
    return call


@_without_modes
def shard_parameter(parameter: torch.Tensor, name: str,
                    make_part: Callable[..., torch.Tensor] = torch.empty) -> None:
    """Keeps 1/N of rank 0's values on each of N ranks, in make_part(count, dtype=...).

    Parts are in host memory; gathered values are on the device of the collectives.
    """
    values = parameter.detach().to(comm.get_device()).contiguous()
    _native.broadcast(values, 0, f"zero.Init: {name}")
    parameter.ds_id = next(_ids)
    parameter.ds_shape = values.shape
    parameter.ds_numel = values.numel()
    parameter.ds_tensor = make_part(-(-values.numel() // _native.world_size()),
                                    dtype=values.dtype)
    parameter._dsrun_name = name
    own = weakref.ref(parameter)
    parameter.__deepcopy__ = lambda memo: _copy(own(), memo)
    keep_part(parameter, values)


@_without_modes
def _copy(parameter, memo):
    """copy.deepcopy for a sharded parameter: torch.nn.Parameter's would lose the part."""
    settle([parameter])
    if parameter.ds_status is ZeroParamStatus.AVAILABLE:
        raise RuntimeError(f"parameter {parameter._dsrun_name} is gathered: copy it outside of "
                           "GatheredParameters")
    copied = type(parameter)(parameter.detach().clone(), parameter.requires_grad)
    vars(copied).update(vars(parameter))
    copied.ds_id = next(_ids)
    copied.ds_tensor = copy.deepcopy(parameter.ds_tensor, memo)
    own = weakref.ref(copied)
    copied.__deepcopy__ = lambda memo: _copy(own(), memo)
    memo[id(parameter)] = copied
    return copied


@_without_modes
def keep_part(parameter: torch.Tensor, values: torch.Tensor | None = None) -> None:
    """Empties the parameter, after this rank has kept its part of the values, if there are any."""
    part = parameter.ds_tensor
    if values is not None:
        own = values.reshape(-1)[_native.rank() * part.numel():][:part.numel()]
        part[:own.numel()].copy_(own)
    full = parameter.data
    parameter.data = torch.empty(0, dtype=part.dtype, device=comm.get_device())
    parameter.ds_status = ZeroParamStatus.NOT_AVAILABLE
    _heap.count(full)


@_without_modes
def gather_values(parameter: torch.Tensor) -> torch.Tensor:
    """Returns the values of all ranks' parts, in the parameter's own shape."""
    part = parameter.ds_tensor
    device = comm.get_device()
    full = torch.empty(part.numel() * _native.world_size(), dtype=part.dtype, device=device)
    _native.all_gather(full, part.to(device), f"gathering {parameter._dsrun_name}")
    return full[:parameter.ds_numel].view(parameter.ds_shape)


def _count_uses(tensor: torch.Tensor) -> int:
    """Returns how many tensors have the memory of this one, and this call."""
    storage = tensor.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata)


@_without_modes
def share_memory(parameters: list[torch.Tensor]) -> list[bool]:
    """Returns for each gathered parameter whether, on any rank, another tensor has its memory."""
    single = torch.empty(1)
    alone = _count_uses(single)
    shared = torch.tensor([_count_uses(p) > alone for p in parameters], dtype=torch.int32,
                          device=comm.get_device())
    of_ranks = shared.repeat(_native.world_size())
    _native.all_gather(of_ranks, shared, "tensors that share a parameter's memory")
    return of_ranks.view(-1, len(parameters)).any(0).tolist()


@_without_modes
def open_parameters(parameters: list[torch.Tensor]) -> None:
    """Gives the parameters their values until close_parameters."""
    for parameter in parameters:
        if parameter.ds_status is not ZeroParamStatus.NOT_AVAILABLE:
            raise RuntimeError(f"parameter {parameter._dsrun_name} is gathered already: nested "
                               "GatheredParameters cannot have the same parameters")
        _check_empty(parameter)
    for parameter in parameters:
        parameter.data = gather_values(parameter)
        parameter.ds_status = ZeroParamStatus.AVAILABLE


@_without_modes
def close_parameters(parameters: list[torch.Tensor], modifier_rank: int | None,
                     error: str = "") -> None:
    """Keeps the values of `modifier_rank`, if it is not None; else the values from before.

    `error` is this rank's; one on any rank undoes changes, and is raised on all.
    """
    try:
        if not error:
            _check_shapes(parameters)
    except ValueError as changed:
        error = str(changed)
    try:
        _native.agree(error)
    except RuntimeError:
        modifier_rank = None
        raise
    finally:
        for parameter in parameters:
            values = None
            if modifier_rank is not None:
                values = parameter.detach().to(comm.get_device()).contiguous()
                _native.broadcast(values, modifier_rank, f"keeping {parameter._dsrun_name}")
            keep_part(parameter, values)


def describe_error(kind: type[BaseException] | None, error: BaseException | None) -> str:
    """Returns the text for other ranks of an exception that ends a ``with`` block, "" for none."""
    return "" if error is None else f"{kind.__name__}: {error}"


class Opened:
    """A ``with`` block of open_parameters and close_parameters."""

    def __init__(self, parameters: list[torch.Tensor], modifier_rank: int | None):
        self.parameters, self.modifier_rank = parameters, modifier_rank

    def __enter__(self):
        open_parameters(self.parameters)

    def __exit__(self, kind, error, trace):
        if not self.parameters:
            return
        try:
            close_parameters(self.parameters, self.modifier_rank, describe_error(kind, error))
        except RuntimeError:
            if error is None:  # else the exception of this rank goes on
                raise


def _check_empty(parameter: torch.Tensor) -> None:
    if parameter.numel() > 0:
        raise RuntimeError(f"parameter {parameter._dsrun_name} has got a tensor of shape "
                           f"{tuple(parameter.shape)} while it was sharded: write it within "
                           "zero.GatheredParameters(..., modifier_rank=0)")


def _check_shapes(parameters: list[torch.Tensor]) -> None:
    for parameter in parameters:
        if parameter.shape != parameter.ds_shape or parameter.dtype != parameter.ds_tensor.dtype:
            raise ValueError(
                f"parameter {parameter._dsrun_name} has got another shape or dtype within "
                f"GatheredParameters: {tuple(parameter.shape)} of {parameter.dtype}, before "
                f"{tuple(parameter.ds_shape)} of {parameter.ds_tensor.dtype}")


class Handover:
    """Gives the values of a module's sharded parameters to an engine, unit by unit.

    Within the ``with`` block the parameters have their shapes, and no memory. At its end,
    parameters with values that no engine has taken are sharded as before.
    """

    def __init__(self, units: list[Unit]):
        self.units = [list(unit.parameters.values()) for unit in units]
        self.sharded = [p for unit in self.units for p in unit if is_sharded(p)]

    @_without_modes
    def __enter__(self):
        settle(self.sharded)
        for parameter in self.sharded:
            if parameter.ds_status is not ZeroParamStatus.NOT_AVAILABLE:
                raise RuntimeError(f"parameter {parameter._dsrun_name} is gathered: call "
                                   "initialize() outside of GatheredParameters")
            _check_empty(parameter)
        for parameter in self.sharded:
            shape = torch.empty(parameter.ds_shape, dtype=parameter.ds_tensor.dtype,
                                device=comm.get_device())
            shape.untyped_storage().resize_(0)
            parameter.data = shape
        return self

    def __exit__(self, *error):
        for parameter in self.sharded:
            if is_sharded(parameter):
                keep_part(parameter)

    @_without_modes
    def write(self, unit: int) -> bool:
        """Writes the unit's values; returns whether every rank has the same values."""
        for parameter in self.units[unit]:
            if is_sharded(parameter):
                values = gather_values(parameter)
                parameter.data.copy_(values)
                _heap.count(values)
        same = all(is_sharded(parameter) for parameter in self.units[unit])
        for parameter in filter(is_sharded, self.units[unit]):
            for name in ("ds_tensor", "_dsrun_name", "__deepcopy__"):
                delattr(parameter, name)
        return same
