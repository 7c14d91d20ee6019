"""DeepSpeed's ``deepspeed.utils``: access to fp32 weights, gradients and optimizer state.

The getters return None for a parameter that no engine trains. Getters of gradients return None
before the step's last backward pass. All but the local getters of weights and optimizer state are
collective: every rank calls them in the same order.
"""

from __future__ import annotations

import logging

import torch

from .units import owner_of, set_z3_leaf_modules

__all__ = [f"safe_{verb}_{scope}_{what}"
           for verb in ("get", "set") for scope in ("full", "local")
           for what in ("fp32_param", "grad", "optimizer_state")]
__all__ += ["logger", "set_z3_leaf_modules"]

logger = logging.getLogger("dsrun")


def _get(param, kind: str, local: bool, state: str = ""):
    engine, name = owner_of(param)
    if engine is None or not param.requires_grad:
        return None
    return engine.native.get_tensor(kind, name, state, local)


def _set(param, value: torch.Tensor, kind: str, local: bool, state: str = "") -> None:
    engine, name = owner_of(param)
    if engine is None:
        raise ValueError("the parameter belongs to no engine")
    engine.native.set_tensor(kind, name, state, local, value.detach())


def safe_get_full_fp32_param(param: torch.Tensor) -> torch.Tensor | None:
    """Returns the fp32 weight, unsharded, in its shape."""
    return _get(param, "param", local=False)


def safe_get_full_grad(param: torch.Tensor) -> torch.Tensor | None:
    """Returns the mean gradient over ranks and micro-batches, unsharded, in fp32."""
    return _get(param, "grad", local=False)


def safe_get_full_optimizer_state(param: torch.Tensor, optim_state_key: str) -> torch.Tensor | None:
    """Returns an optimizer state such as "exp_avg", unsharded, in fp32."""
    return _get(param, "state", local=False, state=optim_state_key)


def safe_set_full_fp32_param(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes the weight; all ranks pass the same value."""
    _set(param, value, "param", local=False)


def safe_set_full_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes the gradient; all ranks pass the same value."""
    _set(param, value, "grad", local=False)


def safe_set_full_optimizer_state(param: torch.Tensor, value: torch.Tensor,
                                  optim_state_key: str) -> None:
    """Writes an optimizer state; all ranks pass the same value."""
    _set(param, value, "state", local=False, state=optim_state_key)


def safe_get_local_fp32_param(param: torch.Tensor) -> torch.Tensor | None:
    """Returns this rank's part of the fp32 weight, flat."""
    return _get(param, "param", local=True)


def safe_get_local_grad(param: torch.Tensor) -> torch.Tensor | None:
    """Returns this rank's part of the gradient, flat, in fp32."""
    return _get(param, "grad", local=True)


def safe_get_local_optimizer_state(param: torch.Tensor,
                                   optim_state_key: str) -> torch.Tensor | None:
    """Returns this rank's part of an optimizer state, flat, in fp32."""
    return _get(param, "state", local=True, state=optim_state_key)


def safe_set_local_fp32_param(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes this rank's part of the weight."""
    _set(param, value, "param", local=True)


def safe_set_local_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes this rank's part of the gradient."""
    _set(param, value, "grad", local=True)


def safe_set_local_optimizer_state(param: torch.Tensor, value: torch.Tensor,
                                   optim_state_key: str) -> None:
    """Writes this rank's part of an optimizer state."""
    _set(param, value, "state", local=True, state=optim_state_key)
