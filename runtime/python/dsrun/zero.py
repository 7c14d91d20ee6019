"""DeepSpeed's ``deepspeed.zero``: access to parameters that are sharded."""

from __future__ import annotations

import enum
import warnings

import torch

from .units import is_leaf_module, owner_of, set_z3_leaf_modules

__all__ = ["GatheredParameters", "Init", "ZeroParamStatus", "is_leaf_module",
           "register_external_parameter", "set_z3_leaf_modules", "unregister_external_parameter"]


class ZeroParamStatus(enum.Enum):
    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


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

    Parameters that no engine has are left alone: they have their values.
    """

    def __init__(self, params, modifier_rank=None, fwd_module=None, enabled=True):
        self.parameters = _parameters_of(params) if enabled else []
        self.modifier_rank = modifier_rank
        self.engine = None

    def __enter__(self):
        owned = [(p, *owner_of(p)) for p in self.parameters]
        owned = [(p, engine, name) for p, engine, name in owned if engine is not None]
        if not owned:
            return self
        engine = owned[0][1]
        if engine.passes.depth > 0:
            # Twice: one that was gathered first may have been released for a later one.
            for p, _, _ in owned + owned:
                engine.passes.on_read(p)
            return self
        self.engine = engine
        self.owned = [p for p, _, _ in owned]
        engine.native.open_gathered(sorted({name for _, _, name in owned}), self.modifier_rank)
        for p in self.owned:
            p.ds_status = ZeroParamStatus.AVAILABLE
        return self

    def __exit__(self, kind, error, trace):
        if self.engine is None:
            return
        text = "" if error is None else f"{kind.__name__}: {error}"
        for p in self.owned:
            p.ds_status = self.engine.idle_status
        engine, self.engine = self.engine, None
        engine.native.close_gathered(text)


class Init:
    """The context in which scripts build a model for ZeRO-3.

    Each process holds the model until `initialize` shards it: unlike DeepSpeed's Init, this does
    not save memory while the model is built, and says so once.
    """

    _told = False

    def __init__(self, module=None, data_parallel_group=None, mem_efficient_linear=True,
                 remote_device=None, pin_memory=False, config_dict_or_path=None, config=None,
                 enabled=True, dtype=None, mpu=None, **kwargs):
        self.enabled = enabled
        self.dtype = dtype

    def __enter__(self):
        if self.enabled and not Init._told:
            Init._told = True
            warnings.warn("zero.Init: each process holds the whole model until initialize() "
                          "shards it", stacklevel=2)
        self.before = torch.get_default_dtype()
        if self.enabled and self.dtype is not None:
            torch.set_default_dtype(self.dtype)
        return self

    def __exit__(self, *error):
        torch.set_default_dtype(self.before)


def register_external_parameter(module, parameter) -> None:
    """Accepted for scripts written for DeepSpeed: the engine finds such reads by itself."""


def unregister_external_parameter(module, parameter) -> None:
    """See register_external_parameter."""
