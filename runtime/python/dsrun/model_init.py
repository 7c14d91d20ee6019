"""zero.Init: the context in which scripts build a model that one process could not hold."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from . import comm
from .engine import read_config, training_dtype
from .shards import Opened, ZeroParamStatus, is_sharded, shard_parameter

# Functions that end with _ and leave the values alone.
_NOT_WRITING = {"requires_grad_", "share_memory_", "detach_", "set_", "resize_"}


def _writes(function) -> bool:
    name = getattr(function, "__name__", "")
    if name.startswith("__"):
        return name == "__setitem__" or name.startswith("__i") and name != "__init__"
    return name.endswith("_") and name not in _NOT_WRITING


class _GatherWritten(TorchFunctionMode):
    """Gathers the sharded parameters that a module's constructor writes, for that one call.

    A constructor that initializes weights of an inner module finds them sharded.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not _writes(func):
            return func(*args, **kwargs)
        # torch.nn.init's functions pass theirs by name.
        with _gather([*args[:1], kwargs.get("tensor")]):
            return func(*args, **kwargs)


def _gather(parameters) -> Opened:
    """GatheredParameters of parameters that no engine has, with rank 0's changes."""
    return Opened([p for p in parameters
                   if is_sharded(p) and p.ds_status is ZeroParamStatus.NOT_AVAILABLE], 0)


def _apply_gathered(module: nn.Module, function):
    """nn.Module.apply; the function finds the values of each module's own parameters."""
    for child in module.children():
        child.apply(function)
    with _gather(module.parameters(recurse=False)):
        function(module)
    return module


class _Constructors:
    """Calls after(module) behind the constructor of each module that is built meanwhile."""

    def __init__(self, after):
        self.after = after
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
            try:
                original(module, *args, **kwargs)
            finally:
                self.running.discard(id(module))
            self.after(module)

        self.originals[cls] = original
        cls.__init__ = construct


def _find_folder(remote_device, zero: dict) -> Path | None:
    """Returns the folder for parts on NVMe; None if they stay in memory."""
    offload = zero.get("offload_param") or {}
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
    GatheredParameters gives access to them. Buffers stay. All ranks build the same modules in the
    same order. `module` is one that exists: its parameters are sharded at once, in their dtypes.

    Parameters that are built within get `dtype`, or that of the config; without both they keep
    theirs. Parts are in memory, or in files below the config's offload_param.nvme_path. Inner
    contexts of nested ones do nothing. With world-wide sharding only: groups, `mpu` and quantized
    forms are refused. `mem_efficient_linear`, `pin_memory` and `tensor_overrides` have no effect.
    """

    _outermost: Init | None = None

    def __init__(self, module=None, data_parallel_group=None, mem_efficient_linear=True,
                 remote_device=None, pin_memory=False, config_dict_or_path=None, config=None,
                 enabled=True, dtype=None, mpu=None, zero_param_parallel_group=None,
                 zero_quantized_weights=False, zero_quantized_nontrainable_weights=False,
                 sequence_data_parallel_group=None, param_swapper=None, tensor_overrides=None):
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
        zero = read.get("zero_optimization") or {}
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
        if is_sharded(parameter) or parameter.is_meta:
            return
        if dtype is not None and parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
        shard_parameter(parameter, name, self._make_part)

    def _shard_own(self, module: nn.Module) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            self._shard(parameter, f"{type(module).__name__}.{name}", self.dtype)

    def __enter__(self):
        if not self.enabled or Init._outermost is not None:
            return self
        Init._outermost = self
        self._default_dtype = torch.get_default_dtype()
        if self.dtype is not None:
            torch.set_default_dtype(self.dtype)
        self._constructors = _Constructors(self._shard_own)
        self._constructors.attach()
        self._apply = nn.Module.apply
        if self._replaces_apply:
            nn.Module.apply = _apply_gathered
        self._writes = _GatherWritten()
        self._writes.__enter__()
        return self

    def __exit__(self, *error):
        if Init._outermost is not self:
            return
        Init._outermost = None
        self._writes.__exit__(*error)
        nn.Module.apply = self._apply
        self._constructors.detach()
        torch.set_default_dtype(self._default_dtype)
