"""What save_checkpoint and load_checkpoint refuse before they change anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .optimizers import ConfigScheduler
from .pipe import PipelineModule
from .together import compare_ranks

if TYPE_CHECKING:
    from .engine import Engine

SCHEDULE_OF_CONFIG = "ds_config"  # names the schedule of the config in a checkpoint


def check_tag(tag: object) -> str:
    """Returns the tag as a text; raises ValueError if a folder cannot have its name."""
    text = str(tag)
    if (not text.strip() or text != text.strip() or text in (".", "..", "latest")
            or any(mark in text for mark in "/\\\0\n\r")):
        raise ValueError(f"tag={tag!r}: a tag is the name of a folder within the checkpoints' folder, "
                         'such as "global_step10"; it has no "/" and no blanks around it, and is not '
                         '"latest"')
    return text


def check_same(key: object, shown: str, sentence: str) -> None:
    """Raises ValueError if `key`, as JSON, differs between the ranks. Collective.

    `sentence` tells what all ranks have to do; `shown` is what this rank does, for the message.
    """
    compare_ranks([key, shown], lambda first, rank, other: "" if other[0] == first[0] else (
        f"rank 0 {first[1]}, and rank {rank} {other[1]}: {sentence}"))


def schedule_kind(engine: Engine) -> str | None:
    """Names the class of the engine's schedule, as checkpoints keep it; None without one."""
    if engine.lr_scheduler is None:
        return None
    if isinstance(engine.lr_scheduler, ConfigScheduler):
        return SCHEDULE_OF_CONFIG
    return type(engine.lr_scheduler).__name__


def _missing_field(own: dict, saved: dict) -> str | None:
    """Names a field of the schedule's state that the saved one lacks, or has in another form.

    PyTorch's own fields (`_last_lr`) differ between its releases, but for lists of schedules.
    """
    for name, value in own.items():
        parts = isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
        if name.startswith("_") and not parts:
            continue
        if name not in saved:
            return name
        other = saved[name]
        if (parts or name == "base_lrs") and (not isinstance(other, list)
                                              or len(other) != len(value)):
            return name
        for one, two in zip(value, other) if parts else ():
            missing = _missing_field(one, two) if isinstance(two, dict) else name
            if missing is not None:
                return f"{name}.{missing}"
    return None


def _check_schedule(engine: Engine, folder: Path, client: dict) -> None:
    own, saved = schedule_kind(engine), client["lr_scheduler"]
    if own is None or not hasattr(engine.lr_scheduler, "load_state_dict"):
        return
    advice = "make the schedule that was saved, or load with load_lr_scheduler_states=False"
    kind = client.get("schedule_kind", own if saved else SCHEDULE_OF_CONFIG)  # older ones have none
    if "written_by" in client:
        if own != SCHEDULE_OF_CONFIG:
            raise ValueError(f"{folder} is no checkpoint of a script, and has no state for {own} of "
                             "the script: name the schedule in the config, or load with "
                             "load_lr_scheduler_states=False")
        return
    if kind != own:
        raise ValueError(f"{folder} has {_describe_schedule(kind)}, and the engine "
                         f"{_describe_schedule(own)}: {advice}")
    if own == SCHEDULE_OF_CONFIG:
        return
    field = _missing_field(engine.lr_scheduler.state_dict(), saved)
    if field is not None:
        raise ValueError(f"{folder} has a state of {kind} without its {field}, or with another number "
                         f"of values there: {advice}")


def _describe_schedule(kind: str | None) -> str:
    if kind is None:
        return "no schedule"
    return "the schedule of the config" if kind == SCHEDULE_OF_CONFIG else f"a {kind}"


def stage_of(engine: Engine) -> tuple[int, int]:
    """(number of the rank's pipeline stage, how many there are)"""
    is_pipeline = isinstance(engine.module, PipelineModule)
    return (engine.stage_id, engine.num_stages) if is_pipeline else (0, 1)


def rates_of(engine: Engine, client: dict) -> list[float] | None:
    """The saved rates of this rank's groups; None if stages with other groups were divided otherwise."""
    stage, count = stage_of(engine)
    saved = client.get("rates_of_stages") or {0: client["rates"]}
    if len(saved) == count:
        return saved[stage]
    return saved[0] if all(rates == saved[0] for rates in saved.values()) else None


def _check_rates(engine: Engine, folder: Path, rates: list[float] | None) -> None:
    if rates is None:
        return
    advice = "load it with load_optimizer_states=False"
    groups = len(engine._param_groups())
    if groups != len(rates):
        raise ValueError(f"{folder} has the rates of {len(rates)} parameter groups, and the optimizer "
                         f"has {groups}: {advice}")


def check_extra_state(names: set[str], saved: set[str]) -> None:
    """Raises KeyError if other modules have extra state than in the checkpoint."""
    if names != saved:
        raise KeyError("the checkpoint and the module have extra state (get_extra_state) of other "
                       f"parts: {sorted(saved)}, {sorted(names)}")


def check_fits(engine: Engine, folder: Path, client: dict, *, with_optimizer: bool, with_schedule: bool,
               strict: bool, needs_frozen: bool) -> None:
    """Checks what the script's objects and Python's add to the engine's state."""
    if with_optimizer and not client.get("trains", True):
        raise ValueError(f"{folder} was saved by an engine without an optimizer: load it with "
                         "load_optimizer_states=False, or with load_module_only=True")
    if with_optimizer:
        _check_rates(engine, folder, rates_of(engine, client))
    if with_schedule:
        _check_schedule(engine, folder, client)
    if strict:
        check_extra_state(set(engine._modules_with_extra_state()),
                          set(client.get("extra_state", {})))
    if needs_frozen and not client.get("has_frozen", True):
        raise ValueError(f"{folder} was saved with exclude_frozen_parameters: load it with "
                         "load_module_strict=False")
