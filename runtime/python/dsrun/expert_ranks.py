"""Experts that the ranks have apart (MoE with ep_size above 1): their exchange, and their names.

Within a module, a rank's experts are numbered from 0, as in DeepSpeed. The engine, checkpoints and
state dictionaries of all experts name them by their index among all experts, as with ep_size=1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from . import _native, comm
from .config import section
from .shards import is_sharded
from .units import Unit

_LIST = "experts.deepspeed_experts."  # of a rank's experts, within a MOELayer


class _Exchange(torch.autograd.Function):
    """Sends part r of dimension 0 to the r-th of the ranks, and the gradients back."""

    @staticmethod
    def forward(context, rows: Tensor, ranks: list[int]) -> Tensor:
        context.ranks = ranks
        return _native.all_to_all(rows, ranks, "tokens of experts")

    @staticmethod
    def backward(context, gradient: Tensor):
        return _native.all_to_all(gradient, context.ranks, "gradients of experts' tokens"), None


@torch._disable_dynamo
def exchange(rows: Tensor, ranks: list[int]) -> Tensor:
    """Returns the parts of dimension 0 that the ranks have for this one. Collective of the ranks.

    Differentiable; all ranks have equal shapes. Without values (plan_memory), returns a new tensor.
    """
    if isinstance(rows, FakeTensor):
        return rows.clone()
    return _Exchange.apply(rows, ranks)


@torch._disable_dynamo
def agree_on_capacity(capacity: int, ranks: list[int], tokens: Tensor) -> int:
    """Returns the largest of the ranks' capacities for `tokens`. Collective of the ranks."""
    if isinstance(tokens, FakeTensor):  # of plan_memory
        return capacity
    return _native.find_largest(capacity, ranks)


class _Layer(NamedTuple):
    """The experts of one layer on this rank: first, first + 1, ... of count * parts."""

    prefix: str  # of their names, up to the index
    first: int
    count: int
    parts: int

    def split(self, name: str) -> tuple[int, str]:
        """Returns the index in an expert's name, and what follows it."""
        index, rest = name.removeprefix(self.prefix).split(".", 1)
        return int(index), rest


class ApartExperts:
    """The experts of a module that other ranks do not have."""

    def __init__(self, module: nn.Module, rank: int | None = None):
        """Finds the experts of this rank, or of another `rank` of the job."""
        self.rank = rank
        self.layers: list[_Layer] = []
        self.ep_size = 1
        self.parameters: set[int] = set()  # ids of this rank's
        for name, layer in module.named_modules(remove_duplicate=False):
            if getattr(layer, "ep_ranks", None) is not None:
                self._add(f"{name}.{_LIST}" if name else _LIST, layer)
        self._refuse_others(module)

    def _add(self, prefix: str, layer: nn.Module) -> None:
        ranks = layer.ep_ranks
        if self.layers and len(ranks) != self.ep_size:
            raise NotImplementedError(
                f"MoE(ep_size={len(ranks)}) next to MoE(ep_size={self.ep_size}): give all layers "
                "of a model the same ep_size, or 1")
        if any(prefix.startswith(other.prefix) for other in self.layers):
            raise NotImplementedError(f"{prefix}: MoE with ep_size above 1 within an expert of "
                                      "another")
        self.ep_size = len(ranks)
        experts = layer.experts
        count = experts.num_local_experts
        rank = comm.get_rank() if self.rank is None else self.rank
        self.layers.append(_Layer(prefix, ranks.index(rank) * count, count, len(ranks)))
        for name, parameter in experts.named_parameters():
            if is_sharded(parameter):
                raise NotImplementedError(
                    f"{prefix}{name.split('.', 1)[1]}: zero.Init keeps rank 0's values, and ranks "
                    f"of MoE(ep_size={len(ranks)}) have different experts: make the model outside "
                    "of it")
            self.parameters.add(id(parameter))
        for name, buffer in experts.state_dict(keep_vars=True).items():
            if not isinstance(buffer, nn.Parameter):
                raise NotImplementedError(
                    f"buffer {prefix}{name.split('.', 1)[1]}: experts that ranks have apart cannot "
                    "have buffers in the state dictionary: use ep_size=1, or persistent=False")

    def _refuse_others(self, module: nn.Module) -> None:
        for name, parameter in module.named_parameters():
            group = getattr(parameter, "group_name", None)
            if getattr(parameter, "allreduce", True) or group in (None, "ep_size_1"):
                continue
            if id(parameter) not in self.parameters:
                raise NotImplementedError(
                    f"parameter {name} is marked as an expert's of {group}, outside of a MoE: use "
                    "dsrun.moe.MoE for experts that the ranks have apart")

    def _layer_of(self, name: str) -> _Layer | None:
        return next((layer for layer in self.layers if name.startswith(layer.prefix)), None)

    def is_expert(self, name: str) -> bool:
        """Whether the name is of an expert's value, on this rank or on another."""
        return self._layer_of(name) is not None

    def in_all(self, name: str) -> str:
        """Returns the name among all experts of what has this name in the module."""
        layer = self._layer_of(name)
        if layer is None:
            return name
        index, rest = layer.split(name)
        return f"{layer.prefix}{layer.first + index}.{rest}"

    def of_all_ranks(self, name: str) -> list[str]:
        """Returns the names of this and of the corresponding values of other ranks, on rank 0."""
        layer = self._layer_of(name)
        if layer is None:
            return [name]
        index, rest = layer.split(name)
        return [f"{layer.prefix}{part * layer.count + index}.{rest}" for part in range(layer.parts)]

    def name_units(self, units: list[Unit]) -> None:
        """Names the parameters of units as among all experts."""
        for unit in units if self.layers else ():
            unit.parameters = {self.in_all(name): p for name, p in unit.parameters.items()}
            unit.classes = {self.in_all(name): of for name, of in unit.classes.items()}


def find_apart_experts(module: nn.Module, config: dict) -> ApartExperts:
    """Divides the ranks for the module's layers of experts; returns what they have apart.

    The config, for the engine, gets the number of the ranks that share experts.

    Raises NotImplementedError for what cannot be trained so.
    """
    data_first = bool(config.get("use_data_before_expert_parallelism", False))
    for part in module.modules():
        if hasattr(part, "set_deepspeed_parallelism"):
            part.set_deepspeed_parallelism(data_first)
    apart = ApartExperts(module)
    _set_config(apart, config)
    return apart


def _set_config(apart: ApartExperts, config: dict) -> None:
    """Checks what the config has next to apart experts, and adds their size to it."""
    if not apart.layers:
        return
    data_first = config.get("use_data_before_expert_parallelism", False)
    mics = section(config, "zero_optimization").get("mics_shard_size", -1)
    if data_first and isinstance(mics, int) and mics > 0:
        raise NotImplementedError("use_data_before_expert_parallelism with mics_shard_size: remove "
                                  "one")
    if "stages" in section(config, "pipeline"):
        raise NotImplementedError(f"MoE(ep_size={apart.ep_size}) in a PipelineModule: use "
                                  "ep_size=1")
    config["expert_parallel"] = {"enabled": True, "autoep_size": apart.ep_size}


def plan_apart_experts(module: nn.Module, config: dict, ranks: int) -> ApartExperts:
    """Returns what rank 0 of a job of `ranks` has apart, without a job; see find_apart_experts.

    The module's layers are set up for a dry run, which exchanges nothing.
    """
    for layer in module.modules():
        if not hasattr(layer, "find_ranks") or layer.ep_size == 1:
            continue
        if ranks % layer.ep_size != 0:
            raise ValueError(f"plan_memory(ranks={ranks}): MoE(ep_size={layer.ep_size}) needs a multiple of "
                             f"{layer.ep_size} ranks")
        layer.ep_ranks = list(range(layer.ep_size))
    apart = ApartExperts(module, rank=0)
    _set_config(apart, config)
    return apart


def take_own_experts(module: nn.Module, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the values by their names in the module: of experts, those that this rank has."""
    for layer in module.modules():
        if hasattr(layer, "find_ranks") and layer.ep_size > 1:
            layer.find_ranks()
    apart = ApartExperts(module)
    own = {name: value for name, value in values.items() if not apart.is_expert(name)}
    for name, _ in module.named_parameters():
        if apart.is_expert(name) and apart.in_all(name) in values:
            own[name] = values[apart.in_all(name)]
    return own
