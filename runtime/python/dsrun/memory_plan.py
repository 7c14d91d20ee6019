"""plan_memory(): the memory of each rank of a training, from a dry run of the module.

The dry run is one forward and one backward pass with tensors that have shapes and no values
(torch's FakeTensorMode). It measures the activations of each unit; the states follow from the
config, by the plan that the ranks of `dsrun train` follow.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import weakref
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (DataDependentOutputException, DynamicOutputShapeException,
                                           FakeTensor, FakeTensorMode, UnsupportedOperatorException)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from . import _native, comm
from .config import (casts_inputs, check_sections, read_config, section, take_python_keys, to_json,
                     training_dtype)
from .expert_ranks import plan_apart_experts
from .hooks import Passes, cast_tensors, in_backward
from .kept_state import KeptState
from .pipe import PipelineModule
from .units import Unit, find_leaf_modules, owner_of, partition
from .utils import logger


@dataclasses.dataclass
class MemoryPlan:
    """The planned memory of one rank, in bytes.

    `peak` is the sum of the fields up to `other`, at the moment `when`. `saved` has the activations
    that each unit saves for its backward pass. `details` has more of the plan, as in the output of
    `dsrun estimate --json`: what offloading moves is in `details["away"]`, if anything is moved.
    """

    peak: int
    parameters: int
    gradients: int
    optimizer_state: int
    master_weights: int
    comm_buffers: int
    activations: int
    other: int
    between_steps: int
    when: str
    saved: dict[str, int]
    details: dict

    def __str__(self) -> str:
        rows = [(name, getattr(self, name)) for name in (
            "parameters", "gradients", "optimizer_state", "master_weights", "comm_buffers",
            "activations", "other", "peak", "between_steps")]
        away = self.details.get("away", {})
        rows += [(title, away[name]) for name, title in (
            ("host", "offloaded to host"), ("files", "offloaded to files"),
            ("file_buffers", "buffers for files")) if away.get(name)]
        lines = [f"{name.replace('_', ' '):<20}{size / 2**20:>12.1f} MiB" for name, size in rows]
        return "\n".join([*lines, f"the peak is in {self.when}"])


class _Meter(TorchDispatchMode):
    """Counts the bytes of the tensors that operations make, from the first to their end."""

    def __init__(self):
        super().__init__()
        self.live = self.peak = 0
        self._known: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, torch.Tensor):
                self._count(result.untyped_storage())
        return results

    def ignore(self, tensor: torch.Tensor) -> None:
        """Leaves a tensor out: it is counted elsewhere."""
        storage = tensor.untyped_storage()
        self._known[id(storage)] = weakref.ref(storage, self._forget(id(storage)))

    def _forget(self, key: int):
        def end(ref):
            if self._known.get(key) is ref:
                del self._known[key]

        return end

    def _count(self, storage) -> None:
        known = self._known.get(id(storage))
        if known is not None and known() is storage:
            return
        size = storage.nbytes()

        forget = self._forget(id(storage))

        def end(ref):
            self.live -= size
            forget(ref)

        self._known[id(storage)] = weakref.ref(storage, end)
        self.live += size
        self.peak = max(self.peak, self.live)


class _Mark(torch.autograd.Function):
    """The end of a unit's forward pass; in the backward pass, its beginning."""

    @staticmethod
    def forward(ctx, recorder, unit, *tensors):
        ctx.recorder, ctx.unit = recorder, unit
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx, *gradients):
        ctx.recorder.change(ctx.unit)
        return (None, None, *gradients)


class _Recorder:
    """Takes the engine's place at the hooks of Passes, and measures each unit's activations."""

    def __init__(self, units: list[Unit], meter: _Meter):
        self.meter = meter
        self.begin = meter.live
        self.saved, self.forward, self.backward = ([0] * len(units) for _ in range(3))
        self.order: list[int] = []  # of the forward pass
        self.current: int | None = None
        self.is_backward = False
        self.level = meter.live

    def change(self, unit: int | None) -> None:
        """Ends the stretch of the current unit, and begins one of `unit`."""
        self._end()
        self.current, self.level = unit, self.meter.live
        self.meter.peak = self.meter.live

    def _end(self) -> None:
        unit, meter = self.current, self.meter
        self.is_backward = self.is_backward or in_backward()
        if unit is None:
            return
        if self.is_backward:
            before = self.begin + sum(self.saved[one] for one in self.order[:self.order.index(unit)])
            self.backward[unit] = max(self.backward[unit], meter.peak - before)
            return
        self.forward[unit] = max(self.forward[unit], self.saved[unit] + meter.peak - self.level)
        self.saved[unit] = max(0, self.saved[unit] + meter.live - self.level)

    def begin_forward(self, samples: int, labels: int, evaluates: bool) -> None:
        """The first unit's memory has what comes before it."""

    def enter(self, unit: int) -> None:
        if unit not in self.order:
            self.order.append(unit)
        self.change(unit)

    def reads_also(self, unit: int, other: int) -> None:
        """The plan knows tied parameters alone."""

    def leave(self, unit: int, tensors):
        return list(_Mark.apply(self, unit, *tensors))

    def end_forward(self, tensors):
        self.change(self.current)
        return tensors


def _make_fake(tensor: torch.Tensor, mode: FakeTensorMode, dtype, meter: _Meter) -> torch.Tensor:
    """Returns a tensor like a parameter or buffer, without values, which the meter ignores."""
    is_parameter = isinstance(tensor, nn.Parameter)
    if not is_parameter or dtype is None or not tensor.is_floating_point():
        dtype = tensor.dtype
    shape = tuple(getattr(tensor, "ds_shape", tensor.shape))  # of zero.Init
    with mode:
        fake = torch.empty(shape, dtype=dtype, device=tensor.device)
    meter.ignore(fake)
    if is_parameter and tensor.requires_grad:
        fake.requires_grad_()
        # The plan has the gradients of parameters.
        fake.register_post_accumulate_grad_hook(lambda one: setattr(one, "grad", None))
    return fake


def _make_fakes(model: nn.Module, mode: FakeTensorMode, dtype, meter: _Meter) -> dict[int, torch.Tensor]:
    """Returns the tensors without values in place of the parameters and buffers, by their ids."""
    fakes: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None and id(tensor) not in fakes:
                fakes[id(tensor)] = _make_fake(tensor, mode, dtype, meter)
    return fakes


def _loss_of(outputs) -> torch.Tensor:
    loss = getattr(outputs, "loss", None)
    if loss is None:
        tensors = [one for one in tree_leaves(outputs)
                   if isinstance(one, torch.Tensor) and one.requires_grad]
        if not tensors:
            raise ValueError("plan_memory(): no output of the module needs gradients")
        loss = tensors[0]
    return loss if loss.numel() == 1 else loss.float().sum()


# What PyTorch says of a tensor without values.
_NEEDS_VALUES = ("numpy() is not supported for tensor subclasses", "data is not allocated yet",
                 "Cannot access data pointer")


def _run(model: nn.Module, units: list[Unit], meter: _Meter, mode: FakeTensorMode, make_inputs) -> _Recorder:
    """Runs the passes; make_inputs() returns the module's arguments."""
    recorder = _Recorder(units, meter)
    passes = Passes(model, units, recorder)
    try:
        with mode, meter:
            args, kwargs = make_inputs()
            _loss_of(model(*args, **kwargs)).backward()
            recorder.change(None)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise NotImplementedError(f"plan_memory(): the module's code depends on values ({error})") from None
    except UnsupportedOperatorException as error:
        raise NotImplementedError("plan_memory(): the module has an operation that cannot run without values "
                                  f"({error.func})") from None
    except RuntimeError as error:
        if not any(text in str(error) for text in _NEEDS_VALUES):
            raise
        raise NotImplementedError("plan_memory(): the module's code reads the values of a tensor, as for "
                                  "NumPy, and the dry run has none") from error
    finally:
        passes.detach()
    return recorder


def _dry_run(model: nn.Module, config: dict, ranks: int, args, kwargs) -> tuple[list, dict[str, int]]:
    """Returns (units for the native plan, what each saves); adds the size of apart experts to `config`."""
    mode, meter = FakeTensorMode(allow_non_fake_inputs=True), _Meter()

    def make_inputs():
        fakes = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
        return (cast_tensors(fakes[0], torch.float16), fakes[1]) if casts_inputs(config) else fakes

    kept = KeptState(model, args, kwargs)
    try:
        leaves = find_leaf_modules(model, take_python_keys(config))
        apart = plan_apart_experts(model, config, ranks)
        fakes = _make_fakes(model, mode, training_dtype(config), meter)
        kept.replace(fakes)
        units = partition(model, leaves)
        recorder = _run(model, units, meter, mode, make_inputs)
        experts = {id(fakes[key]) for key in apart.parameters}
        described = [_describe(unit, experts, sizes) for unit, sizes in zip(
            units, zip(recorder.saved, recorder.forward, recorder.backward, strict=True), strict=True)]
        saved = {unit.name: size for unit, size in zip(units, recorder.saved, strict=True)}
    finally:
        kept.restore()
    del kept, fakes, units, recorder
    _check_nothing_left(mode)
    return described, saved


def _check_nothing_left(mode: FakeTensorMode) -> None:
    """Raises RuntimeError if tensors of the dry run are in use, where the model's state is not."""
    def find():
        return [one for one in gc.get_objects() if type(one) is FakeTensor and one.fake_mode is mode]

    if not find():
        return
    gc.collect()  # a cycle may have them
    if left := find():
        raise RuntimeError(
            "plan_memory(): the module's code has kept a tensor outside of the module, such as in a "
            f"global variable, an attribute of a class or functools.cache, of shape {tuple(left[0].shape)}. "
            "It has no values, so the module cannot run any more: clear it, or plan in a process of its own")


def _check_ranks(ranks, ranks_of_host) -> None:
    for name, value in (("ranks", ranks), ("ranks_of_host", ranks_of_host)):
        if value is None and name == "ranks_of_host":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"plan_memory({name}={value!r}): give a number of ranks, 1 or more")
    if ranks_of_host is not None and ranks_of_host > ranks:
        raise ValueError(f"plan_memory(ranks_of_host={ranks_of_host}): the job has fewer ranks ({ranks})")


def _choose_device(device) -> str:
    """Returns the kind of device that is planned: "cpu" or "cuda"."""
    if device is None:
        return comm.choose_device()
    kind = device.type if isinstance(device, torch.device) else str(device).split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"plan_memory(device={device!r}): dsrun computes on cpu or cuda")
    return kind


def _list_idle_offload(config: dict, device: str, planned: dict) -> list[str]:
    """Returns a sentence for each choice to offload that moves nothing."""
    idle = []
    for name in ("offload_optimizer", "offload_param"):
        target = section(section(config, "zero_optimization"), name).get("device")
        if target == "cpu" and device == "cpu":
            idle.append(f"zero_optimization.{name}.device cpu moves nothing: the planned ranks compute on the "
                        'CPU. Give plan_memory(device="cuda") for ranks on GPUs')
        elif target == "nvme" and not planned.get("away", {}).get("files"):
            idle.append(f"zero_optimization.{name}.device nvme stores nothing in files here: what is smaller "
                        "than aio.block_size, or fits in offload_param.max_in_cpu, stays in memory")
    return idle


def _warn(warnings: list[str]) -> None:
    if os.environ.get("RANK", "0") == "0":
        for warning in warnings:
            logger.warning(warning)


def plan_memory(model: nn.Module, *args: Any, config: dict | str | os.PathLike, ranks: int = 1,
                ranks_of_host: int | None = None, device: str | torch.device | None = None,
                **kwargs: Any) -> MemoryPlan:
    """Plans the memory of each of `ranks` data-parallel ranks, without training.

    No engine and no job is needed. The model may be on any device, also "meta", and within
    zero.Init. It runs once where it is, on tensors without values. After that the model is as it
    was, also after an error: its parameters, and all that its forward sets or adds in attributes,
    buffers, caches, hooks and what these refer to. What forward keeps elsewhere, as in a global
    variable, is an error. Random numbers of Python and of PyTorch on the CPU go on as before.

    Temporary memory within an operation, and allocators' own, are not counted. A MoE with ep_size
    above 1 is planned with tokens that divide evenly among the ranks.

    Args:
        args, kwargs: a micro-batch, as the model takes it. Its output has a loss: `outputs.loss`,
            or the first tensor with gradients, which is added up.
        config: ds_config as a dictionary or a path, with an optimizer. What has no effect is
            logged as a warning, as by initialize().
        ranks_of_host: of the largest host; all by default.
        device: where the ranks compute, "cpu" or "cuda", whatever device the model is on; by
            default where an engine of this process would. It decides what offloading moves.

    Raises:
        ValueError: the config or a number is not valid, or nothing is trained.
        NotImplementedError: the memory of a feature is not known, or the module's code depends on
            values, which the dry run does not have.
        RuntimeError: code of the module has kept tensors without values outside of it.
    """
    _check_ranks(ranks, ranks_of_host)
    device = _choose_device(device)
    read = read_config(None, config, None)
    check_sections(read, is_pipeline=False)
    if isinstance(model, PipelineModule):
        raise NotImplementedError("plan_memory() of a PipelineModule")
    if any(owner_of(parameter)[0] is not None for parameter in model.parameters()):
        raise ValueError("plan_memory(): an engine has the model; plan before initialize()")
    kind = section(read, "optimizer").get("type")
    if not isinstance(kind, str):
        raise ValueError("plan_memory() needs a config with an optimizer")
    if kind.lower() == "muon":  # the script chooses its parameters
        raise NotImplementedError("plan_memory(): the memory of Muon is not known")
    native_config = to_json(read)
    described, saved = _dry_run(model, native_config, ranks, args, kwargs)
    inputs = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    text, warnings = _native.plan_memory(
        described, json.dumps(native_config), (ranks, ranks_of_host or ranks), device == "cuda",
        sum(one.numel() * one.element_size() for one in inputs))
    planned = json.loads(text)
    _warn(warnings + _list_idle_offload(read, device, planned))
    sizes = {field.name: planned[field.name] for field in dataclasses.fields(MemoryPlan)
             if field.name in planned}
    return MemoryPlan(**sizes, saved=saved, details=planned)


def _describe(unit: Unit, experts: set[int], activations: tuple[int, int, int]) -> tuple:
    """Describes a unit for the native plan. `experts` are ids of parameters that other ranks lack."""
    parameters = []
    for parameter in unit.parameters.values():
        shape = tuple(parameter.shape)
        rows = shape[0] if len(shape) > 1 else 1
        columns = math.prod(shape) // max(rows, 1)
        parameters.append((rows, columns, len(shape) > 1, parameter.requires_grad,
                           id(parameter) in experts))
    return unit.name, parameters, sorted(unit.also_reads), activations
