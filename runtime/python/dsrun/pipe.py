"""DeepSpeed's ``deepspeed.pipe``: models as lists of layers that pipeline stages divide.

    module = PipelineModule([LayerSpec(Linear, 8, 8), torch.relu], num_stages=2, loss_fn=mse_loss)
    engine, *_ = dsrun.initialize(model=module, config="ds_config.json")
    loss = engine.train_batch(data_iter)
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from . import _native, checkpointing, comm
from .pipe_topology import (PipeDataParallelTopology, PipelineParallelGrid,
                            PipeModelDataParallelTopology, ProcessTopology, check_topology)

__all__ = ["LayerSpec", "PipeDataParallelTopology", "PipeModelDataParallelTopology",
           "PipelineError", "PipelineModule", "PipelineParallelGrid", "ProcessTopology",
           "TiedLayerSpec"]


class PipelineError(Exception):
    """A call that a pipeline has no room for: use train_batch and eval_batch."""


class LayerSpec:
    """A layer that its stage builds: the class of a module, and its arguments."""

    def __init__(self, typename: type[nn.Module], *module_args: Any, **module_kwargs: Any):
        if not issubclass(typename, nn.Module):
            raise RuntimeError("LayerSpec only supports torch.nn.Module types.")
        self.typename = typename
        self.module_args = module_args
        self.module_kwargs = module_kwargs

    def __repr__(self) -> str:
        arguments = [repr(value) for value in self.module_args]
        arguments += [f"{name}={value!r}" for name, value in self.module_kwargs.items()]
        return f"{self.typename.__name__}({', '.join(arguments)})"

    def build(self, log: bool = False) -> nn.Module:
        """Makes the module."""
        return self.typename(*self.module_args, **self.module_kwargs)


class TiedLayerSpec(LayerSpec):
    """A layer that shares its module with all layers of the same `key`.

    Different stages have copies with equal weights `tied_weight_attr`. `forward_fn` takes
    (module, input) in place of the module's forward.
    """

    def __init__(self, key: str, typename: type[nn.Module], *module_args: Any,
                 forward_fn: Callable | None = None,
                 tied_weight_attr: str | Iterable[str] = ("weight",), **module_kwargs: Any):
        super().__init__(typename, *module_args, **module_kwargs)
        self.key = key
        self.forward_fn = forward_fn
        self.tied_weight_attr = ([tied_weight_attr] if isinstance(tied_weight_attr, str)
                                 else list(tied_weight_attr))


def _set_seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed % 2**32)


def _partition_uniform(count: int, parts: int) -> list[int]:
    if count <= parts:
        return [min(part, count) for part in range(parts + 1)]
    size, rest = divmod(count, parts)
    return [part * size + min(part, rest) for part in range(parts + 1)]


def _partition_balanced(weights: list[int], parts: int) -> list[int]:
    """Divides the weights into runs with the smallest difference of their sums, as DeepSpeed does.

    best[j][i] has, of the best division of the first i weights into j runs: the difference, the
    largest sum, the smallest sum, and where the last run begins. Of equally good ones, the last.
    """
    count = len(weights)
    if count <= parts:
        return _partition_uniform(count, parts)
    sums = [0]
    for weight in weights:
        sums.append(sums[-1] + weight)
    infinite = float("inf")
    best = [[(infinite, infinite, infinite, 0)] * (count + 1) for _ in range(parts + 1)]
    best[0][0] = (0, 0, infinite, 0)
    for i in range(1, count + 1):
        for j in range(1, min(i, parts) + 1):
            for k in range(j - 1, i):
                _, most, least, _ = best[j - 1][k]
                most, least = max(most, sums[i] - sums[k]), min(least, sums[i] - sums[k])
                if best[j][i][0] >= most - least:
                    best[j][i] = (most - least, most, least, k)
    bounds = [count]
    for j in range(parts, 0, -1):
        bounds.append(best[j][bounds[-1]][3])
    return bounds[::-1]


def _name_of(layer) -> str | None:
    if isinstance(layer, LayerSpec):
        return layer.typename.__name__
    if isinstance(layer, nn.Module):
        return type(layer).__name__
    return getattr(layer, "__name__", None)


def _has_parameters(layer) -> bool:
    return isinstance(layer, nn.Module) and next(layer.parameters(), None) is not None


def _get_attribute(module: nn.Module, name: str) -> torch.Tensor:
    for part in name.split("."):
        module = getattr(module, part)
    return module


class PipelineModule(nn.Module):
    """A sequence of layers: each takes the output of the one before.

    Args:
        layers: LayerSpecs, modules and functions. A rank keeps those of its stage; the default
            method builds each on every rank, to count its parameters.
        num_stages: the number of stages, among which the ranks of the job are divided evenly; the
            others are data-parallel copies. `topology` in its place has it along the axis "pipe".
        loss_fn: takes (outputs, labels); without one, the last layer returns the loss.
        seed_layers: seeds the generators before each layer, from `base_seed` and its number, with
            `seed_fn` if there is one.
        partition_method: "parameters" balances the trained parameters of stages, "uniform" the
            layers, "type:REGEX" the layers of classes with a matching name.
        activation_checkpoint_interval: recompute so many layers at a time in the backward pass;
            0 recomputes none.
        activation_checkpoint_func: recomputes: it takes a function and its arguments.
        checkpointable_layers: names of the classes that are recomputed; None: runs of layers of
            which one has parameters.
        dynamic_shape: accepted; shapes may always change.
    """

    def __init__(self, layers: Iterable, num_stages: int | None = None,
                 topology: ProcessTopology | None = None, loss_fn: Callable | None = None,
                 seed_layers: bool = False, seed_fn: Callable | None = None, base_seed: int = 1234,
                 partition_method: str = "parameters", activation_checkpoint_interval: int = 0,
                 activation_checkpoint_func: Callable = checkpointing.checkpoint,
                 checkpointable_layers: list[str] | None = None, dynamic_shape: bool = False):
        super().__init__()
        if num_stages is None and topology is None:
            raise RuntimeError("must provide num_stages or topology")
        comm.init_distributed()
        self._topo = topology or _make_topology(num_stages)
        check_topology(self._topo)
        self._grid = PipelineParallelGrid(self._topo)
        self.num_stages = self._grid.pipe_parallel_size
        self.stage_id = self._grid.stage_id
        self.global_rank = self._grid.global_rank
        self.world_size = self._grid.world_size
        self.seed_layers, self.seed_fn, self.base_seed = seed_layers, seed_fn, base_seed
        self.activation_checkpoint_interval = activation_checkpoint_interval
        self.activation_checkpoint_func = activation_checkpoint_func
        self.checkpointable_layers = checkpointable_layers
        self.dynamic_shape = dynamic_shape
        self.micro_offset = 0
        self.curr_layer = 0
        self._set_loss(loss_fn)
        self._layer_specs = list(layers)
        self._num_layers = len(self._layer_specs)
        self.partition_method = partition_method
        self.parts = self._partition_layers(partition_method)
        self._local_start, self._local_stop = self.parts[self.stage_id:self.stage_id + 2]
        self._check_layers()
        self.forward_funcs: list[Callable] = []
        self.tied_modules = nn.ModuleDict()
        for index in range(self._local_start, self._local_stop):
            self._add_layer(index)
        for key in sorted(self.tied_modules):
            self._tie_stages(key)

    def _set_loss(self, loss_fn) -> None:
        if _has_parameters(loss_fn):
            raise NotImplementedError("PipelineModule: a loss_fn with parameters; make it a part "
                                      "of the last layer, which may return the loss")
        if self.stage_id == self.num_stages - 1:
            self.loss_fn = loss_fn
        else:
            # Not a submodule here: checkpoints have its buffers once.
            self.__dict__["loss_fn"] = loss_fn

    def _count_parameters(self, layer) -> int:
        module = layer.build() if isinstance(layer, LayerSpec) else layer
        if not isinstance(module, nn.Module):
            return 0
        return sum(p.numel() for p in module.parameters() if p.requires_grad)

    def _partition_layers(self, method: str) -> list[int]:
        """Returns the first layer of each stage, and the number of layers."""
        layers, stages = self._layer_specs, self.num_stages
        kind = method.lower()
        if kind == "uniform":
            return _partition_uniform(len(layers), stages)
        if kind == "parameters":
            return _partition_balanced([self._count_parameters(layer) for layer in layers], stages)
        if kind.startswith("type:"):
            wanted = re.compile(method[len("type:"):], re.IGNORECASE)
            found = [int(bool(name and wanted.search(name))) for name in map(_name_of, layers)]
            if not any(found):
                raise RuntimeError(f"Partitioning '{wanted.pattern}' found no valid layers to "
                                   "partition.")
            return _partition_balanced(found, stages)
        raise NotImplementedError(f"Partitioning method {method} not implemented.")

    def _check_layers(self) -> None:
        stage_of: dict[int, int] = {}
        for index, layer in enumerate(self._layer_specs):
            if isinstance(layer, PipelineModule):
                raise NotImplementedError("a PipelineModule as a layer of another one")
            stage = self.stage_owner(index)
            if _has_parameters(layer) and stage_of.setdefault(id(layer), stage) != stage:
                raise ValueError(f"layer {index}, {_name_of(layer)}, is on two stages, which would "
                                 "train copies of it apart: use TiedLayerSpec")

    def _seed(self, seed: int) -> None:
        if self.seed_layers:
            (self.seed_fn or _set_seed)(seed)

    def _add_layer(self, index: int) -> None:
        layer = self._layer_specs[index]
        self._seed(self.base_seed + index)
        if isinstance(layer, TiedLayerSpec):
            if layer.key not in self.tied_modules:
                self.tied_modules[layer.key] = layer.build()
            module = self.tied_modules[layer.key]
            run = functools.partial(layer.forward_fn, module) if layer.forward_fn else module
        else:
            module = run = layer.build() if isinstance(layer, LayerSpec) else layer
            if isinstance(module, nn.Module):
                self.add_module(str(index), module)
        self.forward_funcs.append(run)

    def _tie_stages(self, key: str) -> None:
        """Makes the weights of a tied module equal on its stages, which all call this.

        The engine adds up their gradients.
        """
        specs = [(index, layer) for index, layer in enumerate(self._layer_specs)
                 if isinstance(layer, TiedLayerSpec) and layer.key == key]
        stages = sorted({self.stage_owner(index) for index, _ in specs})
        if len(stages) == 1:
            return
        module = self.tied_modules[key]
        here = next(layer for index, layer in specs if self.stage_owner(index) == self.stage_id)
        tied = [_get_attribute(module, name) for name in here.tied_weight_attr]
        for name, parameter in module.named_parameters():
            if not any(parameter is one for one in tied):
                raise NotImplementedError(
                    f"TiedLayerSpec {key!r} is on stages {stages}, and does not tie its parameter "
                    f"{name}: name it in tied_weight_attr, or put it into a layer of its own")
        if next(module.buffers(), None) is not None:
            raise NotImplementedError(f"TiedLayerSpec {key!r} is on stages {stages}, and has "
                                      "buffers: put them into a layer of their own")
        ranks = [self._grid.stage_to_global(stage) for stage in stages]
        for parameter in tied:
            values = parameter.data.to(comm.get_device()).contiguous()
            _native.broadcast(values, ranks[0], ranks=ranks)
            parameter.data = values.to(parameter.device)
            parameter._dsrun_stages = stages

    def _run_layers(self, start: int, end: int) -> Callable:
        """Returns a function that runs these layers of the stage."""
        offset = self.micro_offset + 1

        def run(*inputs):
            value = inputs[0] if len(inputs) == 1 else inputs
            for index in range(start, end):
                self.curr_layer = index + self._local_start
                self._seed(self.base_seed * offset + self.curr_layer)
                value = self.forward_funcs[index](value)
            return value

        return run

    def _is_recomputed(self, functions: list[Callable]) -> bool:
        if self.checkpointable_layers is not None:
            return all(type(one).__name__ in self.checkpointable_layers for one in functions)
        return any(_has_parameters(one) for one in functions)

    def forward(self, forward_input: Any) -> Any:
        """Runs the layers of this stage."""
        self.micro_offset += 1
        count = len(self.forward_funcs)
        interval = self.activation_checkpoint_interval
        if interval == 0:
            return self._run_layers(0, count)(forward_input)
        value = forward_input
        for start in range(0, count, interval):
            end = min(start + interval, count)
            inputs = value if isinstance(value, tuple) else (value,)
            run = self._run_layers(start, end)
            if self._is_recomputed(self.forward_funcs[start:end]):
                value = self.activation_checkpoint_func(run, *inputs)
            else:
                value = run(*inputs)
        return value

    def list_layers(self) -> list[nn.Module]:
        """Returns the modules among the layers of this stage, which are the engine's units."""
        own = (self._modules.get(str(index)) for index in range(self._local_start, self._local_stop))
        return [layer for layer in (*own, *self.tied_modules.values()) if layer is not None]

    def partitions(self) -> list[int]:
        """The index of each stage's first layer, and the number of layers."""
        return self.parts

    def stage_owner(self, layer_idx: int) -> int:
        """Returns the stage of a layer."""
        return next(stage for stage in range(self.num_stages)
                    if self.parts[stage] <= layer_idx < self.parts[stage + 1])

    def set_checkpoint_interval(self, interval: int) -> None:
        """Recomputes groups of so many layers in the backward pass; 0: none."""
        self.activation_checkpoint_interval = interval

    def topology(self) -> ProcessTopology:
        """The places of the ranks among stages and copies."""
        return self._topo

    def mpu(self) -> PipelineParallelGrid:
        """This rank's place, by the names of Megatron's mpu."""
        return self._grid

    def num_pipeline_stages(self) -> int:
        """The stages that divide the layers."""
        return self.num_stages

    def get_additional_losses(self) -> dict | None:
        """Override of DeepSpeed's models; the engine refuses other results than None."""
        return None

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles the layers one by one, as torch.compile does."""
        for index, layer in enumerate(self.forward_funcs):
            if isinstance(layer, nn.Module):
                layer.compile(*args, **kwargs)
            else:
                self.forward_funcs[index] = torch.compile(layer, *args, **kwargs)


def _make_topology(stages: int) -> ProcessTopology:
    world = comm.get_world_size()
    if world % stages != 0:
        raise RuntimeError(f"num_stages ({stages}) must divide distributed world size ({world})")
    return PipeDataParallelTopology(stages, world // stages)
