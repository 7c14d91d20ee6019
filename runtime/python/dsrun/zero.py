"""DeepSpeed's ``deepspeed.zero``: access to parameters that are sharded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import torch
from torch import nn

from .gathered import GatheredOfEngine
from .model_init import Init
from .shards import Opened, ZeroParamStatus, is_sharded, settle
from .units import declared_reads, is_leaf_module, owner_of, set_z3_leaf_modules

__all__ = ["GatheredParameters", "Init", "ZeroParamStatus", "is_leaf_module",
           "register_external_parameter", "set_z3_leaf_modules", "unregister_external_parameter"]


def _parameters_of(params) -> list[torch.Tensor]:
    if isinstance(params, torch.Tensor):
        return [params]
    if isinstance(params, torch.nn.Module):
        return list(params.parameters())
    try:
        return list(params)
    except TypeError:
        raise TypeError(f"GatheredParameters needs parameters, not {type(params).__name__}")


class GatheredParameters:
    """Gives parameters their values, unsharded, within a ``with`` block.

    With `modifier_rank`, all ranks have the values that this rank has written when the block ends,
    also in shards and fp32 masters. Without it, changes are undone. All ranks enter and leave the
    block together, with the same parameters, of any engines. Within a forward pass of their engine
    it only gathers: a `modifier_rank` raises NotImplementedError there. A block within another one
    may have parameters of it, with the same `modifier_rank`: it changes nothing.

    Parameters that neither an engine nor zero.Init has sharded are left alone: they have their
    values.
    """

    def __init__(self, params: torch.Tensor | nn.Module | Iterable[torch.Tensor],
                 modifier_rank: int | None = None, fwd_module: nn.Module | None = None,
                 enabled: bool = True):
        if modifier_rank is not None and not hasattr(modifier_rank, "__index__"):
            raise TypeError(f"GatheredParameters(modifier_rank={modifier_rank!r}): a rank is a whole "
                            "number, or None")
        self.parameters = _parameters_of(params) if enabled else []
        self.modifier_rank = modifier_rank
        self._blocks = contextlib.ExitStack()

    def __enter__(self):
        settle(self.parameters)
        # Each once, in an order that all ranks have.
        sharded = {p.ds_id: p for p in self.parameters if is_sharded(p)}
        engines: dict[int, tuple] = {}
        for parameter in self.parameters:
            engine, name = owner_of(parameter)
            if engine is not None:
                engines.setdefault(id(engine), (engine, []))[1].append((parameter, name))
        with contextlib.ExitStack() as blocks:
            blocks.enter_context(Opened([sharded[number] for number in sorted(sharded)],
                                        self.modifier_rank))
            for engine, owned in engines.values():
                if engine.passes.is_in_forward:
                    self._read_in_forward(engine, owned)
                else:
                    blocks.enter_context(GatheredOfEngine(engine, owned, self.modifier_rank))
            self._blocks = blocks.pop_all()
        return self

    def _read_in_forward(self, engine, owned) -> None:
        if self.modifier_rank is not None:
            raise NotImplementedError("GatheredParameters(modifier_rank=...) within a forward pass: "
                                      "write parameters between passes")
        engine.passes.gather_for_read([parameter for parameter, _ in owned])

    def __exit__(self, kind, error, trace):
        self._blocks.__exit__(kind, error, trace)


def register_external_parameter(module: torch.nn.Module, parameter: torch.Tensor) -> None:
    """Declares that the module's forward reads a parameter of another module.

    The engine finds by itself what a forward reads as an attribute of a module, such as
    `self.other.weight`. Reads through other objects, such as a list of parameters, it cannot see:
    declare those, before or after `initialize`.
    """
    if not isinstance(module, torch.nn.Module) or not isinstance(parameter, torch.nn.Parameter):
        raise TypeError("register_external_parameter(module, parameter) needs a module and a parameter, "
                        f"not {type(module).__name__} and {type(parameter).__name__}")
    declared_reads(module).append(parameter)
    engine, _ = owner_of(parameter)
    if engine is not None:
        engine.passes.add_declared_reads(module)


def unregister_external_parameter(module: torch.nn.Module, parameter: torch.Tensor) -> None:
    """Takes a declaration back, for engines that are made later."""
    declared = declared_reads(module)
    declared[:] = [other for other in declared if other is not parameter]
