"""zero.Init: the context in which scripts build a model that one process could not hold."""

from __future__ import annotations

import functools
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from . import comm
from .config import read_config, section, training_dtype
from .shards import (Opened, ZeroParamStatus, is_sharded, open_parameters, settle, share_memory,
                     shard_parameter, touched)
from .units import owner_of

# Attributes and functions of tensors that need no values.
_WITHOUT_VALUES = frozenset((
    "_backward_hooks", "_has_compatible_shallow_copy_type", "_version", "detach_", "device",
    "dtype", "element_size", "get_device", "grad", "grad_fn", "is_complex", "is_contiguous",
    "is_cpu", "is_cuda", "is_floating_point", "is_inference", "is_leaf", "is_meta", "is_quantized",
    "is_shared", "is_signed", "is_sparse", "itemsize", "layout", "new_empty", "new_full",
    "new_ones", "new_tensor", "new_zeros", "output_nr", "register_hook",
    "register_post_accumulate_grad_hook", "requires_grad", "requires_grad_", "retains_grad",
    "share_memory_"))

# Those that ds_shape answers.
_OF_SHAPE = {
    "shape": lambda shape: shape,
    "size": lambda shape, dim=None: shape if dim is None else shape[dim],
    **dict.fromkeys(("dim", "ndim", "ndimension"), len),
    **dict.fromkeys(("numel", "nelement"), torch.Size.numel),
}

# Functions that end with _ and change the shape.
_RESHAPING = frozenset((
    "as_strided_", "resize_", "resize_as_", "set_", "squeeze_", "swapaxes_", "swapdims_", "t_",
    "transpose_", "unsqueeze_"))


def _name_of(function) -> str:
    name = getattr(function, "__name__", "")
    if name in ("__get__", "__set__"):  # of an attribute
        return getattr(function.__self__, "__name__", name)
    return name


def _only_writes(name: str) -> bool:
    """Returns whether a function keeps shapes and returns no other view of its results."""
    if name.startswith("__"):
        return name == "__setitem__" or name.startswith("__i") and name not in (
            "__init__", "__index__", "__int__", "__invert__", "__iter__")
    return name.endswith("_") and name not in _RESHAPING


def _find_sharded(values) -> list[torch.Tensor]:
    """Returns the sharded parameters among values, each once, also those that are gathered."""
    found = {}
    for value in values:
        if isinstance(value, (list, tuple)):
            found.update((id(p), p) for p in _find_sharded(value))
        elif isinstance(value, dict):
            found.update((id(p), p) for p in _find_sharded(value.values()))
        elif isinstance(value, torch.Tensor) and is_sharded(value):
            found[id(value)] = value
    return list(found.values())


def _without_values(parameters) -> list[torch.Tensor]:
    return [p for p in parameters if p.ds_status is ZeroParamStatus.NOT_AVAILABLE]


class _Touched:
    """Sharded parameters that constructors use: each keeps its values until that one has ended.

    There is a list for each constructor that runs, and one for the script around them. Parameters
    that share memory with another tensor, such as .data, stay for the constructor around. Above
    `limit` bytes, the others are sharded earlier.
    """

    limit = 64 << 20

    def __init__(self, shard_again):
        self.shard_again = shard_again
        self.lists: list[list[torch.Tensor]] = [[]]
        self.gathered = 0

    def gather(self, parameters: list[torch.Tensor]) -> None:
        """Gathers the parameters that have no values."""
        added = _without_values(parameters)
        if self.gathered > self.limit and added:
            self._release({id(p) for p in parameters})
        open_parameters(added)
        for parameter in added:
            touched[id(parameter)] = functools.partial(self.shard_again, parameter)
            self.gathered += parameter.ds_numel * parameter.ds_tensor.element_size()
        self.lists[-1] += added

    def _release(self, used: set[int]) -> None:
        """Shards the parameters again that neither `used` nor, on any rank, another tensor has."""
        self.gathered = 0
        rest = [p for kept in self.lists for p in kept if id(p) in touched and id(p) not in used]
        if rest:
            self._settle_unshared(rest)
        for kept in self.lists:
            kept[:] = [p for p in kept if id(p) in touched]

    def _settle_unshared(self, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        """Shards parameters again if no other tensor has their memory; returns the others."""
        found = list(zip(parameters, share_memory(parameters)))
        settle(parameter for parameter, shared in found if not shared)
        return [parameter for parameter, shared in found if shared]

    def begin(self) -> None:
        self.lists.append([])

    def end(self, failed: bool) -> None:
        """Shards the parameters again; those that other tensors share, with the constructor around.

        So with all after an exception: other ranks need not have it.
        """
        parameters = [p for p in self.lists.pop() if id(p) in touched]
        if failed and not self.lists:
            for parameter in parameters:
                touched.pop(id(parameter))
        elif failed:
            self.lists[-1] += parameters
        elif not self.lists:
            settle(parameters)
        elif parameters:
            self.lists[-1] += self._settle_unshared(parameters)


class _GatherUsed(TorchFunctionMode):
    """Gathers the sharded parameters that functions of torch use while modules are built.

    A constructor that reads or writes weights of an inner module finds them sharded. A function
    that only writes has the values for that one call.
    """

    def __init__(self, kept: _Touched):
        super().__init__()
        self.kept = kept

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = _name_of(func)
        found = [] if name in _WITHOUT_VALUES else _find_sharded((args, kwargs))
        sharded = _without_values(found)
        if not sharded:
            return func(*args, **kwargs)
        if name in _OF_SHAPE and args and args[0] is sharded[0]:
            return _OF_SHAPE[name](sharded[0].ds_shape, *args[1:], **kwargs)
        if _only_writes(name):
            with Opened(sharded, 0):
                return func(*args, **kwargs)
        self.kept.gather(found)
        return func(*args, **kwargs)

    def __enter__(self):
        make_subclass = torch.Tensor._make_subclass

        def make_gathered(cls, data, *args, **kwargs):  # by nn.Parameter; modes do not see it
            self.kept.gather(_find_sharded([data]))
            return make_subclass(cls, data, *args, **kwargs)

        torch.Tensor._make_subclass = staticmethod(make_gathered)
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        del torch.Tensor._make_subclass


def _apply_gathered(module: nn.Module, function):
    """nn.Module.apply; the function finds the values of each module's own parameters."""
    for child in module.children():
        child.apply(function)
    with Opened(_without_values(_find_sharded(module.parameters(recurse=False))), 0):
        function(module)
    return module


class _Constructors:
    """Calls before() and after(module, failed) around the constructors of all modules."""

    def __init__(self, before, after):
        self.before, self.after = before, after
        self.originals: dict[type, object] = {}
        self.running: set[int] = set()

    def attach(self) -> None:
        constructors = self

        def on_subclass(cls, **kwargs):
            super(nn.Module, cls).__init_subclass__(**kwargs)
            constructors.wrap(cls)

        nn.Module.__init_subclass__ = classmethod(on_subclass)
        classes = [nn.Module]
        while classes:
            cls = classes.pop()
            classes += cls.__subclasses__()
            self.wrap(cls)

    def detach(self) -> None:
        del nn.Module.__init_subclass__
        for cls, original in self.originals.items():
            cls.__init__ = original
        self.originals.clear()

    def wrap(self, cls: type) -> None:
        original = vars(cls).get("__init__")
        if original is None or cls in self.originals or issubclass(cls, torch.jit.ScriptModule):
            return

        @functools.wraps(original)
        def construct(module, *args, **kwargs):
            if id(module) in self.running:  # a base class
                return original(module, *args, **kwargs)
            self.running.add(id(module))
            self.before()
            failed = True
            try:
                original(module, *args, **kwargs)
                failed = False
            finally:
                self.running.discard(id(module))
                self.after(module, failed)

        self.originals[cls] = original
        cls.__init__ = construct


def _find_folder(remote_device, zero: dict) -> Path | None:
    """Returns the folder for parts on NVMe; None if they stay in memory."""
    offload = section(zero, "offload_param")
    device = offload.get("device", remote_device) or "none"
    device = getattr(device, "value", device)
    if device in ("none", "cpu"):
        return None
    if device != "nvme":
        raise ValueError(f"zero.Init(remote_device={device!r}): none, cpu and nvme exist")
    if not offload.get("nvme_path"):
        raise ValueError("zero.Init(remote_device='nvme') needs a config with "
                         "zero_optimization.offload_param.nvme_path")
    return Path(offload["nvme_path"])


def _make_file_part(folder: Path, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor in a file that goes with it."""
    if count == 0:
        return torch.empty(0, dtype=dtype)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="dsrun-init-") as file:
        return torch.from_file(file.name, shared=True, size=count, dtype=dtype)


class Init:
    """Shards the parameters of modules that are built within, as soon as each is complete.

    Each of N ranks keeps 1/N of rank 0's values. A parameter is then an empty tensor with ds_shape,
    ds_numel, ds_status and ds_tensor (this rank's part), until `initialize` takes the values;
    GatheredParameters gives access to them, and within the context all functions of torch do. What
    they use stays gathered until the constructor that runs has ended. Buffers stay. All ranks build
    the same modules in the same order. `module` is one that exists: its parameters are sharded at
    once, in their dtypes.

    Parameters that are built within get `dtype`, or the dtype of the config; without both they keep
    theirs. Parts are in memory, or in files below the config's offload_param.nvme_path. Inner
    contexts of nested ones do nothing. With world-wide sharding only: groups, `mpu` and quantized
    forms are refused. `mem_efficient_linear`, `pin_memory` and `tensor_overrides` have no effect.
    """

    _outermost: Init | None = None

    def __init__(self, module: nn.Module | None = None,
                 data_parallel_group: torch.distributed.ProcessGroup | None = None,
                 mem_efficient_linear: bool = True, remote_device: str | None = None,
                 pin_memory: bool = False, config_dict_or_path: dict | str | os.PathLike | None = None,
                 config: dict | str | os.PathLike | None = None, enabled: bool = True,
                 dtype: torch.dtype | None = None, mpu: Any = None,
                 zero_param_parallel_group: torch.distributed.ProcessGroup | None = None,
                 zero_quantized_weights: bool = False,
                 zero_quantized_nontrainable_weights: bool = False,
                 sequence_data_parallel_group: torch.distributed.ProcessGroup | None = None,
                 param_swapper: Any = None, tensor_overrides: Any = None):
        self.enabled = enabled
        if not enabled:
            return
        world = torch.distributed.group.WORLD if torch.distributed.is_initialized() else None
        for name, given in (("data_parallel_group", data_parallel_group not in (None, world)),
                            ("sequence_data_parallel_group", sequence_data_parallel_group),
                            ("zero_param_parallel_group", zero_param_parallel_group),
                            ("zero_quantized_weights", zero_quantized_weights),
                            ("zero_quantized_nontrainable_weights",
                             zero_quantized_nontrainable_weights),
                            ("param_swapper", param_swapper), ("mpu", mpu)):
            if given:
                raise NotImplementedError(f"zero.Init({name}=...): parameters are sharded among "
                                          "all ranks, with their exact values")
        given = config_dict_or_path if config_dict_or_path is not None else config
        read = {} if given is None else read_config(None, given, None)
        zero = section(read, "zero_optimization")
        if dtype is None and given is not None:
            dtype = training_dtype(read) or torch.float32
        self.dtype = dtype
        folder = _find_folder(remote_device, zero)
        self._make_part = torch.empty if folder is None else functools.partial(
            _make_file_part, folder)
        self._replaces_apply = zero.get("override_module_apply", True) is not False
        comm.init_distributed()
        if module is not None:
            for name, parameter in module.named_parameters():
                self._shard(parameter, name, None)

    def _shard(self, parameter, name: str, dtype: torch.dtype | None) -> None:
        if is_sharded(parameter) or parameter.is_meta or owner_of(parameter)[0] is not None:
            return
        if dtype is not None and parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
        shard_parameter(parameter, name, self._make_part)

    def _shard_own(self, module: nn.Module) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            self._shard(parameter, f"{type(module).__name__}.{name}", self.dtype)

    def _shard_again(self, parameter) -> None:
        """Shards a parameter that has had its values, and may have got another shape or dtype."""
        dtype = None if parameter.dtype == parameter.ds_tensor.dtype else self.dtype
        del parameter.ds_tensor
        self._shard(parameter, parameter._dsrun_name, dtype)

    def _after_constructor(self, module: nn.Module, failed: bool) -> None:
        self._touched.end(failed)
        if failed:
            return
        self._built.add(module)
        # The outermost constructor may have given inner modules other parameters.
        outermost = not self._constructors.running
        for part in module.modules() if outermost else [module]:
            if part in self._built:
                self._shard_own(part)

    def __enter__(self):
        if not self.enabled or Init._outermost is not None:
            return self
        Init._outermost = self
        self._default_dtype = torch.get_default_dtype()
        if self.dtype is not None:
            torch.set_default_dtype(self.dtype)
        self._touched = _Touched(self._shard_again)
        self._built: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._constructors = _Constructors(self._touched.begin, self._after_constructor)
        self._constructors.attach()
        self._apply = nn.Module.apply
        if self._replaces_apply:
            nn.Module.apply = _apply_gathered
        self._mode = _GatherUsed(self._touched)
        self._mode.__enter__()
        return self

    def __exit__(self, *error):
        if Init._outermost is not self:
            return
        Init._outermost = None
        self._mode.__exit__(*error)
        nn.Module.apply = self._apply
        self._constructors.detach()
        torch.set_default_dtype(self._default_dtype)
        self._touched.end(failed=error[0] is not None)
