"""DeepSpeed's ``deepspeed.ops``: its optimizers, for initialize(optimizer=...).

The engine updates with kernels of its own. Outside of an engine, those that PyTorch has step as
PyTorch's do, and the others raise.
"""

from __future__ import annotations

import torch
from torch.optim.optimizer import ParamsT

__all__ = ["DeepSpeedCPUAdagrad", "DeepSpeedCPUAdam", "DeepSpeedCPULion", "FusedAdam", "FusedLamb",
           "FusedLion"]


class DeepSpeedCPUAdam(torch.optim.Adam):
    """Adam with decoupled decay (AdamW), or with decay in the gradient (adamw_mode=False)."""

    engine_kind = ("Adam", ("betas", "eps"))

    def __init__(self, model_params: ParamsT, lr: float = 1e-3, bias_correction: bool = True,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 amsgrad: bool = False, adamw_mode: bool = True, fp32_optimizer_states: bool = True):
        if not bias_correction:
            raise NotImplementedError(f"{type(self).__name__}(bias_correction=False): name Adam "
                                      "in ds_config's \"optimizer\", which has that parameter")
        if amsgrad:
            raise NotImplementedError(f"{type(self).__name__}(amsgrad=True)")
        super().__init__(model_params, lr, betas, eps, weight_decay,
                         decoupled_weight_decay=adamw_mode)
        self.engine_params = {"fp32_optimizer_states": fp32_optimizer_states}


class FusedAdam(DeepSpeedCPUAdam):
    """DeepSpeedCPUAdam with the arguments of DeepSpeed's Adam for GPUs."""

    engine_kind = DeepSpeedCPUAdam.engine_kind

    def __init__(self, params: ParamsT, lr: float = 1e-3, bias_correction: bool = True,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, adam_w_mode: bool = True,
                 weight_decay: float = 0.0, amsgrad: bool = False, set_grad_none: bool = True):
        super().__init__(params, lr, bias_correction, betas, eps, weight_decay, amsgrad,
                         adam_w_mode)


class DeepSpeedCPUAdagrad(torch.optim.Adagrad):
    """Adagrad, without decay of the rate."""

    engine_kind = ("Adagrad", ("eps",))

    def __init__(self, model_params: ParamsT, lr: float = 1e-2, eps: float = 1e-10,
                 weight_decay: float = 0, amsgrad: bool = False, fp32_optimizer_states: bool = True):
        if amsgrad:
            raise NotImplementedError("DeepSpeedCPUAdagrad(amsgrad=True)")
        super().__init__(model_params, lr, weight_decay=weight_decay, eps=eps)
        self.engine_params = {"fp32_optimizer_states": fp32_optimizer_states}


class _OfEngine(torch.optim.Optimizer):
    """An optimizer that PyTorch does not have."""

    def step(self, closure=None):
        raise NotImplementedError(f"{type(self).__name__}.step(): give the optimizer to "
                                  "initialize(optimizer=...) and call engine.step()")


class DeepSpeedCPULion(_OfEngine):
    """Lion: steps by the sign of the momentum, with decoupled decay. Engines alone have it."""

    engine_kind = ("Lion", ("betas",))

    def __init__(self, model_params: ParamsT, lr: float = 1e-3,
                 betas: tuple[float, float] = (0.9, 0.999), weight_decay: float = 0,
                 fp32_optimizer_states: bool = True):
        super().__init__(model_params, dict(lr=lr, betas=betas, weight_decay=weight_decay))
        self.engine_params = {"fp32_optimizer_states": fp32_optimizer_states}


class FusedLion(DeepSpeedCPULion):
    """DeepSpeedCPULion with the arguments of DeepSpeed's Lion for GPUs."""

    engine_kind = DeepSpeedCPULion.engine_kind

    def __init__(self, params: ParamsT, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 weight_decay: float = 0.0, set_grad_none: bool = True):
        super().__init__(params, lr, betas, weight_decay)


class FusedLamb(_OfEngine):
    """LAMB: Adam's update, scaled for each parameter by norms. Engines alone have it."""

    engine_kind = ("Lamb", ("betas", "eps", "bias_correction", "max_coeff", "min_coeff"))

    def __init__(self, params: ParamsT, lr: float = 1e-3, bias_correction: bool = True,
                 betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 eps_inside_sqrt: bool = False, weight_decay: float = 0.0, max_grad_norm: float = 0.0,
                 max_coeff: float = 10.0, min_coeff: float = 0.01, amsgrad: bool = False):
        if amsgrad:
            raise NotImplementedError("FusedLamb(amsgrad=True)")
        if max_grad_norm > 0:
            raise NotImplementedError("FusedLamb(max_grad_norm=...): give ds_config "
                                      "\"gradient_clipping\"")
        super().__init__(params, dict(lr=lr, bias_correction=bias_correction, betas=betas, eps=eps,
                                      weight_decay=weight_decay, max_coeff=max_coeff,
                                      min_coeff=min_coeff))
        self.engine_params = {"eps_inside_sqrt": eps_inside_sqrt}
