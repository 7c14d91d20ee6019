"""DeepSpeed's ``deepspeed.runtime.lr_schedules``: schedules that a script makes for its optimizer.

    scheduler = WarmupLR(optimizer, warmup_max_lr=1e-3, warmup_num_steps=100)
    engine, *_ = dsrun.initialize(model=model, optimizer=optimizer, lr_scheduler=scheduler, ...)

The engine advances them at each step. ds_config's "scheduler" names the same schedules, which then
run in C++.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .utils import logger

VALID_LR_SCHEDULES = ["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"]


def _per_group(optimizer, value, name: str) -> list:
    count = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} has {len(value)} values, the optimizer {count} parameter groups")
    return list(value)


def _check_positive(value, name: str) -> None:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"{name} is a positive integer, not {value!r}")


class _Schedule:
    """A schedule: `get_lr` gives the rates for the step last_batch_iteration."""

    def __init__(self, optimizer, last_batch_iteration: int):
        if not isinstance(optimizer, torch.optim.Optimizer):
            optimizer = getattr(optimizer, "optimizer", optimizer)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is no torch.optim.Optimizer")
        self.optimizer = optimizer
        self.last_batch_iteration = last_batch_iteration
        self._last_lr: list[float] | None = None

    def get_lr(self) -> list[float]:
        raise NotImplementedError

    def get_last_lr(self) -> list[float]:
        """The rates that the optimizer has been given last."""
        if self._last_lr is None:
            raise RuntimeError("get_last_lr() of a resumed schedule: call step() first")
        return self._last_lr

    def step(self, last_batch_iteration: int | None = None) -> None:
        """Goes to the next step, or to the given one, and sets the optimizer's rates."""
        if last_batch_iteration is None:
            last_batch_iteration = self.last_batch_iteration + 1
        self.last_batch_iteration = last_batch_iteration
        self._set_rates(self.get_lr())

    def _begin(self, rates: list[float]) -> None:
        if self.last_batch_iteration == -1:
            self._set_rates(rates)

    def _set_rates(self, rates: list[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict:
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, sd: dict) -> None:
        self.last_batch_iteration = sd["last_batch_iteration"]


class LRRangeTest(_Schedule):
    """Raises the rate by lr_range_test_step_rate of the least one every step_size steps."""

    def __init__(self, optimizer: Any, lr_range_test_min_lr: float = 1e-3,
                 lr_range_test_step_size: int = 2000, lr_range_test_step_rate: float = 1.0,
                 lr_range_test_staircase: bool = False, last_batch_iteration: int = -1):
        super().__init__(optimizer, last_batch_iteration)
        _check_positive(lr_range_test_step_size, "lr_range_test_step_size")
        self.min_lr = _per_group(self.optimizer, lr_range_test_min_lr, "lr_range_test_min_lr")
        self.step_size = lr_range_test_step_size
        self.step_rate = lr_range_test_step_rate
        self.staircase = lr_range_test_staircase
        self._begin(self.min_lr)

    def get_lr(self) -> list[float]:
        """The rates of the groups: the least ones, raised in stairs or step by step."""
        intervals = (self.last_batch_iteration + 1) / self.step_size
        if self.staircase:
            intervals = math.floor(intervals)
        return [rate * (1 + self.step_rate * intervals) for rate in self.min_lr]


class OneCycle(_Schedule):
    """Raises the rate and lowers it again, in stairs if wanted; then it decays.

    The momentum is not cycled: that is refused for optimizers with betas (cycle_momentum=True).
    """

    def __init__(self, optimizer: Any, cycle_min_lr: float | list[float],
                 cycle_max_lr: float | list[float], decay_lr_rate: float = 0.0,
                 cycle_first_step_size: float = 2000, cycle_second_step_size: float | None = None,
                 cycle_first_stair_count: int = 0, cycle_second_stair_count: int | None = None,
                 decay_step_size: float = 0, cycle_momentum: bool = True, cycle_min_mom: float = 0.8,
                 cycle_max_mom: float = 0.9, decay_mom_rate: float = 0.0,
                 last_batch_iteration: int = -1):
        super().__init__(optimizer, last_batch_iteration)
        if cycle_first_step_size <= 0:
            raise ValueError(f"cycle_first_step_size is positive, not {cycle_first_step_size}")
        if cycle_second_step_size is None:
            cycle_second_step_size = cycle_first_step_size
        if cycle_second_step_size < 0:
            raise ValueError(f"cycle_second_step_size is not negative: {cycle_second_step_size}")
        if cycle_momentum and ("betas" in self.optimizer.defaults or not self.optimizer.defaults):
            raise NotImplementedError(
                "OneCycle(cycle_momentum=True) of a script: name the schedule in ds_config's "
                "\"scheduler\", which cycles the momentum, or give cycle_momentum=False")
        self.first_size = float(cycle_first_step_size)
        self.second_size = float(cycle_second_step_size)
        self.first_stairs = cycle_first_stair_count
        self.second_stairs = (cycle_first_stair_count if cycle_second_stair_count is None
                              else cycle_second_stair_count)
        self.decay_step_size = decay_step_size
        self.decay_lr_rate = decay_lr_rate
        self.min_lrs = _per_group(self.optimizer, cycle_min_lr, "cycle_min_lr")
        self.max_lrs = _per_group(self.optimizer, cycle_max_lr, "cycle_max_lr")
        self._begin(self.min_lrs)

    def _height(self) -> float:
        """Where the rate is between its bounds, from 0 to 1."""
        total = self.first_size + self.second_size
        place = (self.last_batch_iteration + 1) % total
        if place <= self.first_size:
            part, size, stairs = place, self.first_size, self.first_stairs
        else:
            part, size, stairs = total - place, self.second_size, self.second_stairs
        return math.floor(part * stairs / size) / stairs if stairs > 0 else part / size

    def get_lr(self) -> list[float]:
        """The rates of the groups: within the cycle, or in the decay after it."""
        total = self.first_size + self.second_size
        if self.last_batch_iteration < total:
            height = self._height()
            return [low + (high - low) * height for low, high in zip(self.min_lrs, self.max_lrs)]
        if math.isclose(self.decay_step_size, 0) or math.isclose(self.decay_lr_rate, 0):
            return self.min_lrs
        intervals = (self.last_batch_iteration - total + 1) / self.decay_step_size
        return [rate / (1 + self.decay_lr_rate * intervals) for rate in self.min_lrs]


class _Warmup(_Schedule):
    def __init__(self, optimizer, warmup_num_steps: int, warmup_type: str,
                 last_batch_iteration: int):
        super().__init__(optimizer, last_batch_iteration)
        _check_positive(warmup_num_steps, "warmup_num_steps")
        if warmup_type not in ("log", "linear"):
            raise ValueError(f"warmup_type is \"log\" or \"linear\", not {warmup_type!r}")
        self.warmup_num_steps = max(2, warmup_num_steps)
        self.warmup_type = warmup_type

    def _warmth(self) -> float | None:
        """From 0 to 1; None after the warm-up."""
        step = self.last_batch_iteration
        if step >= self.warmup_num_steps:
            return None
        if self.warmup_type == "linear":
            return step / self.warmup_num_steps
        return math.log(step + 1) / math.log(self.warmup_num_steps)

    def _check_total(self, total_num_steps: int) -> None:
        self.total_num_steps = total_num_steps
        if total_num_steps < self.warmup_num_steps:
            logger.warning("total_num_steps (%s) is less than warmup_num_steps (%s)",
                           total_num_steps, self.warmup_num_steps)


class WarmupLR(_Warmup):
    """Raises the rate to warmup_max_lr (the optimizer's own by default) and keeps it."""

    def __init__(self, optimizer: Any, warmup_min_lr: float = 0.0, warmup_max_lr: float | None = None,
                 warmup_num_steps: int = 1000, warmup_type: str = "log",
                 last_batch_iteration: int = -1):
        super().__init__(optimizer, warmup_num_steps, warmup_type, last_batch_iteration)
        if warmup_max_lr is None:
            warmup_max_lr = [group["lr"] for group in self.optimizer.param_groups]
        self.min_lrs = _per_group(self.optimizer, warmup_min_lr, "warmup_min_lr")
        self.max_lrs = _per_group(self.optimizer, warmup_max_lr, "warmup_max_lr")
        self._begin(self.min_lrs)

    def _later(self) -> float:
        return 1.0

    def get_lr(self) -> list[float]:
        """The rates of the groups: the least ones before the first step."""
        if self.last_batch_iteration < 0:
            return self.min_lrs
        warmth = self._warmth()
        share = self._later() if warmth is None else warmth
        return [low + (high - low) * share for low, high in zip(self.min_lrs, self.max_lrs)]


class WarmupDecayLR(WarmupLR):
    """WarmupLR, with a linear decay to warmup_min_lr at total_num_steps."""

    def __init__(self, optimizer: Any, total_num_steps: int, warmup_min_lr: float = 0.0,
                 warmup_max_lr: float = 0.001, warmup_num_steps: int = 1000, warmup_type: str = "log",
                 last_batch_iteration: int = -1):
        super().__init__(optimizer, warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type,
                         last_batch_iteration)
        self._check_total(total_num_steps)

    def _later(self) -> float:
        left = self.total_num_steps - self.last_batch_iteration
        return max(0.0, left / max(1.0, self.total_num_steps - self.warmup_num_steps))


class WarmupCosineLR(_Warmup):
    """Raises the rates from warmup_min_ratio times their values, then lowers them by a cosine."""

    def __init__(self, optimizer: Any, total_num_steps: int, warmup_min_ratio: float = 0.0,
                 warmup_num_steps: int = 1000, cos_min_ratio: float = 0.0001, warmup_type: str = "log",
                 last_batch_iteration: int = -1):
        super().__init__(optimizer, warmup_num_steps, warmup_type, last_batch_iteration)
        self._check_total(total_num_steps)
        self.warmup_min_ratio = warmup_min_ratio
        self.cos_min_ratio = cos_min_ratio
        self.org_lrs = [float(group["lr"]) for group in self.optimizer.param_groups]
        self._begin([0.0] * len(self.org_lrs))

    def get_lr_ratio(self) -> float:
        """The share of the optimizer's first rates, 0 before the first step."""
        if self.last_batch_iteration < 0:
            return 0.0
        warmth = self._warmth()
        if warmth is not None:
            return self.warmup_min_ratio + warmth * (1.0 - self.warmup_min_ratio)
        done = self.last_batch_iteration - self.warmup_num_steps + 1
        done /= max(1, self.total_num_steps - self.warmup_num_steps)
        cosine = (1 + math.cos(math.pi * min(1.0, done))) / 2
        return max(0.0, self.cos_min_ratio + (1.0 - self.cos_min_ratio) * cosine)

    def get_lr(self) -> list[float]:
        """The rates of the groups: their first ones times `get_lr_ratio`."""
        ratio = self.get_lr_ratio()
        return [rate * ratio for rate in self.org_lrs]
