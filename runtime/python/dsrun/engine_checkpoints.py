"""Saves and loads an engine: its state, and what the script and Python's objects add to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from . import _native
from .checkpoint_files import (read_client_state, replace_file, resolve_latest,
                               save_with_client_state)
from .gathered import GatheredOfEngine
from .together import call_on_rank_0, call_together
from .utils import logger

if TYPE_CHECKING:
    from .engine import Engine


@dataclasses.dataclass(frozen=True)
class Choice:
    """The options of Engine.load_checkpoint."""

    strict: bool = True
    optimizer_states: bool = True
    schedule: bool = True
    module_only: bool = False
    custom_load_fn: Callable | None = None


def save(engine: Engine, root: Path, tag: str | None, client_state: dict | None, *, save_latest: bool,
         frozen: bool) -> None:
    """Saves the engine to root/tag; see Engine.save_checkpoint. Collective."""
    tag = f"global_step{engine.global_steps}" if tag is None else str(tag)
    engine.passes.owned.check()
    engine._show_buffers()
    client = {"client_state": client_state or {}, "rates": engine.get_lr(),
              "extra_state": call_together(lambda: _read_extra_state(engine)),
              "lr_scheduler": getattr(engine.lr_scheduler, "state_dict", dict)(),
              "trains": engine.optimizer is not None, "has_frozen": frozen}
    save_with_client_state(engine.native, root / tag, client, frozen=frozen)
    if save_latest:
        call_on_rank_0(lambda: replace_file(root / "latest", tag))


def load(engine: Engine, root: Path, tag: str | None, choice: Choice) -> tuple[str | None, dict]:
    """Loads root/tag into the engine; see Engine.load_checkpoint. Collective."""
    latest = root / "latest"
    if tag is None and _native.broadcast_text(str(latest.is_file())) == "False":
        logger.warning("%s does not exist: nothing is loaded", latest)
        return None, {}
    with_optimizer = (choice.optimizer_states and not choice.module_only
                      and engine.optimizer is not None)
    needs_frozen = choice.strict and bool(engine._frozen_names())

    def read():
        folder = resolve_latest(root) if tag is None else root / str(tag)
        newest = resolve_latest(folder)
        client = read_client_state(newest)
        _check(engine, folder, client, with_optimizer, needs_frozen)
        return folder, client, str(newest)

    folder, client, path = call_together(read)
    engine._show_buffers()
    engine.native.load(path, weights=choice.custom_load_fn is None, optimizer_state=with_optimizer,
                       progress=not choice.module_only, schedule=choice.schedule,
                       strict=choice.strict)
    if choice.custom_load_fn is not None:
        # As DeepSpeed, whose checkpoints have frozen weights apart from the module's then.
        loads_frozen = engine.zero_optimization_stage() >= 2 and client.get("has_frozen", True)
        _load_weights_by(engine, choice.custom_load_fn, path, loads_frozen)
    call_together(lambda: _write_extra_state(engine, client.get("extra_state", {}), choice.strict))
    if not choice.module_only:
        _load_schedule(engine, client, with_optimizer, choice.schedule)
    return str(folder), client["client_state"]


def _check(engine, folder: Path, client: dict, with_optimizer: bool, needs_frozen: bool) -> None:
    if with_optimizer and not client.get("trains", True):
        raise ValueError(f"{folder} was saved by an engine without an optimizer: load it with "
                         "load_optimizer_states=False, or with load_module_only=True")
    groups, saved = len(engine._param_groups()), len(client["rates"])
    if with_optimizer and groups != saved:
        raise ValueError(f"{folder} has the rates of {saved} parameter groups, and the optimizer "
                         f"has {groups}: load it with load_optimizer_states=False")
    if needs_frozen and not client.get("has_frozen", True):
        raise ValueError(f"{folder} was saved with exclude_frozen_parameters: load it with "
                         "load_module_strict=False")


def _load_weights_by(engine, custom_load_fn: Callable, path: str, loads_frozen: bool) -> None:
    names = engine._names
    saved = _native.read_weights(path)
    source = {name: value for name, value in saved.items() if not engine._apart.is_expert(name)}
    for name, parameter in engine.module.named_parameters(remove_duplicate=False):
        if names[id(parameter)] in saved:  # tied weights have several names
            source[name] = saved[names[id(parameter)]]
    owned = [(parameter, name) for unit in engine.passes.units
             for name, parameter in unit.parameters.items()]
    with GatheredOfEngine(engine, owned, modifier_rank=0), torch.no_grad():
        custom_load_fn(src=dict(source), dst=engine.module)
        engine.passes.owned.check()
        for name, parameter in engine.module.named_parameters() if loads_frozen else ():
            if not parameter.requires_grad and name in source:
                parameter.copy_(source[name])


def _read_extra_state(engine) -> dict:
    return {name: module.get_extra_state()
            for name, module in engine._modules_with_extra_state().items()}


def _write_extra_state(engine, states: dict, strict: bool) -> None:
    modules = engine._modules_with_extra_state()
    if strict and states.keys() != modules.keys():
        raise KeyError("the checkpoint and the module have extra state (get_extra_state) of other "
                       f"parts: {sorted(states)}, {sorted(modules)}")
    for name in states.keys() & modules.keys():
        modules[name].set_extra_state(states[name])


def _load_schedule(engine, client: dict, with_optimizer: bool, with_schedule: bool) -> None:
    if engine.optimizer is None:
        return
    if with_optimizer:  # rates belong to it
        for group, rate in zip(engine._param_groups(), client["rates"], strict=True):
            group["lr"] = rate
    if with_schedule and hasattr(engine.lr_scheduler, "load_state_dict"):
        engine.lr_scheduler.load_state_dict(client["lr_scheduler"])
    if with_optimizer != with_schedule:
        # As with DeepSpeed, the next update has the optimizer's rate, those after it the schedule's.
        engine.optimizer.hold_rate()
