"""DeepSpeed's ``deepspeed.zero``: access to parameters that are sharded."""

from __future__ import annotations

import contextlib

import torch

from .model_init import Init
from .ownership import GatheredMemory
from .shards import Opened, ZeroParamStatus, describe_error, is_sharded, settle
from .units import is_leaf_module, owner_of, set_z3_leaf_modules

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


class _GatheredOfEngine:
    """GatheredParameters of parameters that one engine has, given as (parameter, name)."""

    def __init__(self, engine, owned: list[tuple[torch.Tensor, str]], modifier_rank: int | None):
        self.engine, self.owned, self.modifier_rank = engine, owned, modifier_rank

    def __enter__(self):
        names = sorted({name for _, name in self.owned})
        self.is_within = self._is_within(names)
        if self.is_within:
            return
        self.engine.native.open_gathered(names, self.modifier_rank)
        self.engine.__dict__["gathered"] = (set(names), self.modifier_rank)
        self.memory = GatheredMemory(self.owned)
        self.engine.passes.suspend()  # the module runs with the gathered values
        for parameter, _ in self.owned:
            parameter.ds_status = ZeroParamStatus.AVAILABLE

    def _is_within(self, names: list[str]) -> bool:
        """Returns whether an outer block has gathered the parameters; raises if it has not all."""
        if self.engine.gathered is None:
            return False
        outer, modifier_rank = self.engine.gathered
        missing = [name for name in names if name not in outer]
        if missing:
            raise RuntimeError(
                "GatheredParameters within another one of the same engine, which has not gathered "
                f"{missing[0]}: gather all parameters in the outer block")
        if modifier_rank != self.modifier_rank:
            raise RuntimeError(
                f"GatheredParameters(modifier_rank={self.modifier_rank}) within one of the same "
                f"engine with modifier_rank={modifier_rank}, which decides what is kept: use that")
        return True

    def __exit__(self, kind, error, trace):
        if self.is_within:
            return
        self.engine.__dict__["gathered"] = None
        for parameter, _ in self.owned:
            parameter.ds_status = self.engine.idle_status_of(parameter)
        self.engine.passes.resume()
        changed = self._find_changes()
        self.engine.native.close_gathered(describe_error(kind, error) or changed)
        if changed and error is None:
            raise RuntimeError(changed)

    def _find_changes(self) -> str:
        """Returns the error of a change that the engine cannot keep."""
        changed = self.memory.take_back()
        if self.modifier_rank is not None and not changed:
            try:
                self.engine.passes.owned.check()
            except RuntimeError as replaced:
                return str(replaced)
        return changed


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

    def __init__(self, params, modifier_rank=None, fwd_module=None, enabled=True):
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
                    blocks.enter_context(_GatheredOfEngine(engine, owned, self.modifier_rank))
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
    """Accepted for scripts written for DeepSpeed: the engine finds such reads by itself."""


def unregister_external_parameter(module: torch.nn.Module, parameter: torch.Tensor) -> None:
    """See register_external_parameter."""
