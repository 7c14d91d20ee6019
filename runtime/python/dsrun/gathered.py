"""Access to parameters that an engine has sharded, within a ``with`` block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .ownership import GatheredMemory
from .shards import ZeroParamStatus, describe_error

if TYPE_CHECKING:
    from .engine import Engine


class GatheredOfEngine:
    """GatheredParameters of parameters that one engine has, given as (parameter, name)."""

    def __init__(self, engine: Engine, owned: list[tuple[torch.Tensor, str]],
                 modifier_rank: int | None):
        self.engine, self.owned, self.modifier_rank = engine, owned, modifier_rank

    def __enter__(self):
        names = sorted({name for _, name in self.owned})
        self.is_within = self._is_within(names)
        if self.is_within:
            return
        self.engine.native.open_gathered(names, self.modifier_rank)
        self.engine.gathered = (set(names), self.modifier_rank)
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
        self.engine.gathered = None
        for parameter, name in self.owned:
            parameter.ds_status = self.engine.idle_status_of(name)
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
