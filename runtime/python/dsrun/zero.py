"""DeepSpeed's ``deepspeed.zero``: access to parameters that are sharded."""

from __future__ import annotations

import torch

from .model_init import Init
from .shards import Opened, ZeroParamStatus, describe_error, is_sharded
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


class GatheredParameters:
    """Gives parameters their values, unsharded, within a ``with`` block.

    With `modifier_rank`, all ranks have the values that this rank has written when the block ends,
    also in shards and fp32 masters. Without it, changes are undone. All ranks enter and leave the
    block together, with the same parameters. Within a forward pass it only gathers.

    Parameters that neither an engine nor zero.Init has sharded are left alone: they have their
    values.
    """

    def __init__(self, params, modifier_rank=None, fwd_module=None, enabled=True):
        self.parameters = _parameters_of(params) if enabled else []
        self.modifier_rank = modifier_rank
        self.engine = None
        self.owned: list[torch.Tensor] = []  # the engine's
        self._opened = Opened([], modifier_rank)  # those of zero.Init

    def __enter__(self):
        # Each once, in an order that all ranks have.
        sharded = {p.ds_id: p for p in self.parameters if is_sharded(p)}
        sharded = [sharded[number] for number in sorted(sharded)]
        self._opened = Opened(sharded, self.modifier_rank)
        self._opened.__enter__()
        owned = [(p, *owner_of(p)) for p in self.parameters]
        owned = [(p, engine, name) for p, engine, name in owned if engine is not None]
        if owned:
            self._open(owned)
        return self

    def _open(self, owned) -> None:
        engine = owned[0][1]
        if engine.passes.depth > 0:
            # Twice: one that was gathered first may have been released for a later one.
            for p, _, _ in owned + owned:
                engine.passes.on_read(p)
            return
        self.engine = engine
        self.owned = [p for p, _, _ in owned]
        engine.native.open_gathered(sorted({name for _, _, name in owned}), self.modifier_rank)
        engine.passes.suspended += 1  # the module runs with the gathered values
        for p in self.owned:
            p.ds_status = ZeroParamStatus.AVAILABLE

    def __exit__(self, kind, error, trace):
        try:
            self._opened.__exit__(kind, error, trace)
        finally:
            self._close(describe_error(kind, error))

    def _close(self, text: str) -> None:
        if self.engine is None:
            return
        for p in self.owned:
            p.ds_status = self.engine.idle_status
        engine, self.engine = self.engine, None
        engine.passes.suspended -= 1
        engine.native.close_gathered(text)


def register_external_parameter(module, parameter) -> None:
    """Accepted for scripts written for DeepSpeed: the engine finds such reads by itself."""


def unregister_external_parameter(module, parameter) -> None:
    """See register_external_parameter."""
