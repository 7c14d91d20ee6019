"""Optimizers of PyTorch as optimizers of the engine, which has its own kernels and shards them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from . import _native

_HANDLED = {
    torch.optim.AdamW: ("AdamW", ("betas", "eps")),
    torch.optim.Adam: ("Adam", ("betas", "eps")),
    torch.optim.SGD: ("SGD", ("momentum", "nesterov")),
    torch.optim.Adagrad: ("Adagrad", ("eps",)),
}
# Options that the engine's optimizers do not have, with the value that means "off".
_OFF = {"amsgrad": False, "maximize": False, "dampening": 0, "lr_decay": 0,
        "initial_accumulator_value": 0}
# Options that all groups share.
_SHARED = ("betas", "eps", "momentum", "nesterov")
# Options that stay as they are at initialize().
_FIXED = (*_SHARED, *_OFF, "weight_decay", "decoupled_weight_decay", "bias_correction", "max_coeff",
          "min_coeff")


@dataclass
class Groups:
    """Parameter groups, their first rates, and the factors of their decays against the engine's."""

    param_groups: list[dict]
    section: dict | None = None  # ds_config's "optimizer"; None: the config's own
    are_of_config: bool = False  # the config's optimizer has the groups
    rates: list[float | None] = field(default_factory=list)  # of each group; None: the config's
    index: dict[int, int] = field(default_factory=dict)  # of the group, by id of the parameter
    decay_factor: dict[int, float] = field(default_factory=dict)  # by id of the parameter


def _rate(group: dict) -> float | None:
    # A scheduler may have set the rate of the first step already.
    rate = group.get("initial_lr", group.get("lr"))
    return None if rate is None else float(rate)


def _list(params) -> list:
    return [params] if isinstance(params, torch.Tensor) else list(params)


def _plain(value):
    return tuple(value) if isinstance(value, list) else value


def _check_rate(params: dict) -> None:
    if params.get("lr") == "auto":
        raise ValueError('optimizer.params.lr of the config is "auto", which only the Trainer of '
                         "transformers and Accelerate replace: write a number")


def _decay_factor(value: float, base: float) -> float:
    if base == 0.0:
        if value != 0.0:
            raise ValueError("a parameter group has weight decay, and the optimizer has none")
        return 1.0
    return value / base


def _set_groups(groups: Groups, decay: float) -> None:
    for index, group in enumerate(groups.param_groups):
        groups.rates.append(_rate(group))
        decay_factor = _decay_factor(float(group.get("weight_decay", decay)), decay)
        for parameter in group["params"]:
            if id(parameter) in groups.index:
                raise ValueError("some parameters appear in more than one parameter group")
        for parameter in group["params"]:
            groups.index[id(parameter)] = index
            groups.decay_factor[id(parameter)] = decay_factor


def _check_off(group: dict, kind: str) -> None:
    for option, off in _OFF.items():
        if group.get(option, off) != off:
            raise NotImplementedError(f"the engine's {kind} has no {option}")


def from_torch(optimizer: torch.optim.Optimizer) -> Groups:
    """Describes an optimizer of PyTorch; raises NotImplementedError for one without a counterpart.

    Its state, if it has any, would be lost, and is refused.
    """
    # Not of a base class: a subclass may have a step of its own.
    handled = vars(type(optimizer)).get("engine_kind") or _HANDLED.get(type(optimizer))
    if handled is None:
        names = ", ".join(sorted(cls.__name__ for cls in _HANDLED))
        raise NotImplementedError(
            f"the engine has no optimizer for {type(optimizer).__module__}."
            f"{type(optimizer).__name__}: pass one of torch.optim ({names}), or name one in "
            "ds_config's \"optimizer\"")
    # Adagrad makes its state at once, for step 0.
    if any(float(state.get("step", 1)) > 0 for state in optimizer.state.values()):
        raise ValueError("the optimizer has state of earlier steps, which the engine cannot take: "
                         "create it anew")
    kind, options = handled
    first = optimizer.param_groups[0]
    for group in optimizer.param_groups:
        _check_off(group, kind)
        for option in (*options, "decoupled_weight_decay"):
            if group.get(option) != first.get(option):
                raise NotImplementedError(f"parameter groups with different {option}")
    params = {option: first[option] for option in options if option in first}
    decay = max(float(group.get("weight_decay", 0.0)) for group in optimizer.param_groups)
    params |= {"lr": _rate(first) or 0.0, "weight_decay": decay}
    if kind == "Adam":  # it adds the decay to the gradient by default
        params["adam_w_mode"] = bool(first.get("decoupled_weight_decay", False))
    params |= getattr(optimizer, "engine_params", {})  # of dsrun.ops
    groups = Groups(optimizer.param_groups, {"type": kind, "params": params})
    _set_groups(groups, decay)
    return groups


def _with_decay_of(groups: list[dict], section: dict) -> dict | None:
    """Returns the section with the groups' weight decay, if it has none; None if that is not so.

    Without one, the engine's optimizer has its own default, which would apply to groups with 0.
    """
    params = section.get("params", {})
    decays = [float(group["weight_decay"]) for group in groups if "weight_decay" in group]
    if not decays or "weight_decay" in params:
        return None
    if len(decays) < len(groups):
        raise ValueError("some parameter groups have a weight_decay, and neither the others nor "
                         "optimizer.params of the config: write one there")
    return {**section, "params": {**params, "weight_decay": max(decays)}}


def from_parameters(model_parameters: Iterable, section: dict) -> Groups:
    """Describes `model_parameters`, tensors or groups, for ds_config's optimizer.

    The groups get their rates from the engine, which knows the rate of the config:
    EngineOptimizer.show_rate.
    """
    listed = list(model_parameters)
    if not listed or not isinstance(listed[0], dict):  # one group, which may be empty
        listed = [{"params": listed}]
    for group in listed:  # of named_parameters(), too
        group["params"] = [one[1] if isinstance(one, tuple) else one for one in _list(group["params"])]
    params = section.get("params", {})
    for group in listed:
        _check_off(group, str(section.get("type")))
        for option in _SHARED:
            if option in group and _plain(group[option]) != _plain(params.get(option)):
                raise NotImplementedError(f"a parameter group with its own {option}: write it to "
                                          "optimizer.params of the config, for all groups")
    _check_rate(params)
    groups = Groups(listed, _with_decay_of(listed, section), are_of_config=True)
    decay = float((groups.section or section).get("params", {}).get("weight_decay", 0.0))
    for group in listed:
        group.setdefault("weight_decay", decay)
    _set_groups(groups, decay)
    return groups


class EngineOptimizer(torch.optim.Optimizer):
    """The engine's optimizer for the script: parameter groups with rates that it may set.

    Schedulers of PyTorch and transformers work on it. `engine.step()` updates, and `step` raises.
    Each group may have any rate. Other changes of groups, or of whether their parameters need
    gradients, raise NotImplementedError at the next step.
    """

    def __init__(self, groups: Groups, native: _native.Engine, has_schedule: bool, section: dict):
        # The list of the script's own optimizer: a scheduler of that sets rates there.
        self.param_groups = groups.param_groups
        self.defaults = {}
        self.state = {}
        self.overflow = False
        self._native = native
        self._has_schedule = has_schedule
        self._has_two_rates = bool({"muon_lr", "adam_lr"} & set(section.get("params", {})))
        self._fixed = self._fixed_options()
        self._parameters = self._list_parameters()

    def _fixed_options(self) -> list[dict]:
        """What the engine took from the groups at initialize()."""
        return [{option: _plain(group.get(option)) for option in _FIXED}
                for group in self.param_groups]

    def _list_parameters(self) -> list[list[tuple[int, bool]]]:
        """The parameters of each group, and whether they need gradients."""
        return [[(id(parameter), parameter.requires_grad) for parameter in group["params"]]
                for group in self.param_groups]

    @property
    def optimizer(self) -> EngineOptimizer:
        """Itself: DeepSpeed's optimizers wrap another one."""
        return self

    @property
    def cur_scale(self) -> float:
        """The factor of the loss in fp16, a power of two; 1 in other dtypes."""
        return self._native.loss_scale

    loss_scale = cur_scale

    def step(self, closure: Callable | None = None) -> None:
        """Raises RuntimeError: engine.step() updates."""
        raise RuntimeError("optimizer.step(): the engine has the optimizer, and would train nothing "
                           "here: call engine.step()")

    def register_step_pre_hook(self, hook: Callable) -> None:
        """Raises NotImplementedError: engine.step() runs no hooks of the optimizer."""
        raise NotImplementedError("hooks of the optimizer's step: engine.step() runs none. Call the "
                                  "function beside engine.step()")

    register_step_post_hook = register_step_pre_hook

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As engine.zero_grad."""
        self._native.zero_grad()

    def state_dict(self) -> dict:
        """Raises NotImplementedError: the engine's checkpoint has the state."""
        raise NotImplementedError("the optimizer's state is saved by engine.save_checkpoint")

    def load_state_dict(self, state_dict: dict) -> None:
        """Raises NotImplementedError: engine.load_checkpoint loads the state."""
        raise NotImplementedError("the optimizer's state is loaded by engine.load_checkpoint")

    def push_rate(self) -> None:
        """Gives the rates of the groups to the engine, before a step."""
        found = self._fixed_options()
        if len(found) != len(self._fixed):
            raise NotImplementedError("the number of parameter groups has changed: the engine "
                                      "keeps those that it had at initialize()")
        for now, before in zip(found, self._fixed):
            for option, value in before.items():
                if now[option] != value:
                    raise NotImplementedError(
                        f"{option} of a parameter group has changed from {value} to {now[option]}: "
                        "the engine keeps the value of initialize(). Schedulers of PyTorch that "
                        "cycle the momentum need cycle_momentum=False")
        if self._list_parameters() != self._parameters:
            raise NotImplementedError(
                "the parameters of a group have changed, or whether one needs gradients "
                "(requires_grad): the engine trains those of initialize(). Make another engine with "
                "initialize() for others")
        self.hold_rate()

    def hold_rate(self) -> None:
        """Gives the rates of the groups to the engine: for one update, if ds_config has a schedule."""
        rates = [float(group["lr"]) for group in self.param_groups]
        if rates != self._native.rates:  # the script has set one
            self._set_rates(rates)

    def scale_rates(self, first: float) -> None:
        """Sets the rate of the first group, and those of the others in their ratios to it."""
        rates = [float(group["lr"]) for group in self.param_groups]
        self._set_rates([first * rate / rates[0] if rates[0] else first for rate in rates])

    def _set_rates(self, rates: list[float]) -> None:
        if self._has_two_rates:
            raise NotImplementedError("optimizer.params has muon_lr or adam_lr: a rate that the "
                                      "script sets would be both's. Use a scheduler of the config")
        self._native.set_rates(rates)

    def pull_rate(self) -> None:
        """Shows the engine's rates of the next step, if ds_config has a scheduler."""
        if self._has_schedule:
            self.show_rate()

    def show_rate(self) -> None:
        """Writes the engine's rates to the groups."""
        for group, rate in zip(self.param_groups, self._native.rates, strict=True):
            group["lr"] = rate


class ConfigScheduler:
    """ds_config's scheduler, which the engine advances at each step."""

    def __init__(self, optimizer: EngineOptimizer):
        self.optimizer = optimizer

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: engine.step() advances the schedule."""
        pass

    def get_last_lr(self) -> list[float]:
        """The rates of the parameter groups for the next step."""
        return [group["lr"] for group in self.optimizer.param_groups]

    get_lr = get_last_lr

    def state_dict(self) -> dict:
        """Returns {}: the engine's checkpoint has the position."""
        return {}  # the engine's checkpoint has it

    def load_state_dict(self, state_dict: dict) -> None:
        """Does nothing: engine.load_checkpoint restores the position."""
        pass
