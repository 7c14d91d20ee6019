"""Saves and loads an engine: its state, and what the script and Python's objects add to it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from . import _native, comm
from .checkpoint_checks import (check_fits, check_same, check_tag, rates_of, schedule_kind,
                                stage_of)
from .checkpoint_files import (describe_content, find_checkpoint, make_folder, read_client_state,
                               replace_file, save_with_client_state)
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
    tag = f"global_step{engine.global_steps}" if tag is None else tag
    check_same([str(root), str(tag), save_latest, frozen], f"saves to {root / str(tag)}",
               "all ranks save to one folder, with the same tag and options")
    tag = check_tag(tag)
    call_together(engine.passes.owned.check)
    call_together(engine.native.check_memory)
    if engine.optimizer is not None:  # C++ programs take the rate of the next step from the engine
        with contextlib.suppress(NotImplementedError):  # which the next step raises
            engine.optimizer.push_rate()
    engine._show_buffers()
    client = {"client_state": client_state or {}, "rates": engine.get_lr(),
              "rates_of_stages": _gather_rates(engine),
              "extra_state": call_together(lambda: _read_extra_state(engine)),
              "lr_scheduler": getattr(engine.lr_scheduler, "state_dict", dict)(),
              "schedule_kind": schedule_kind(engine),
              "trains": engine.optimizer is not None, "has_frozen": frozen}
    call_on_rank_0(lambda: make_folder(root / tag), OSError)
    save_with_client_state(engine.native, root / tag, client, frozen=frozen)
    if save_latest:
        call_on_rank_0(lambda: replace_file(root / "latest", tag), OSError)


def load(engine: Engine, root: Path, tag: str | None, choice: Choice) -> tuple[str | None, dict]:
    """Loads root/tag into the engine; see Engine.load_checkpoint. Collective."""
    options = [choice.strict, choice.optimizer_states, choice.schedule, choice.module_only,
               choice.custom_load_fn is None]
    named = tag if tag is None else str(tag)
    check_same([named, options], f"loads {root / (named or 'latest')}",
               "all ranks load one checkpoint, with the same options")
    latest = root / "latest"
    if tag is None and _native.broadcast_text(str(latest.is_file())) == "False":
        logger.warning("%s does not exist: nothing is loaded", latest)
        return None, {}
    needs_frozen = choice.strict and bool(engine._frozen_names())
    folder, newest, client = call_together(lambda: _read(engine, root, tag, choice, needs_frozen))
    check_same(describe_content(newest), f"loads {newest}",
               "these are not the same checkpoint: all ranks load one")
    engine._show_buffers()
    _load_from(engine, newest, client, choice)
    if "written_by" in client and comm.get_rank() == 0:
        logger.warning("%s was written by %s: it has no client_state, and engine.global_samples is the "
                       "position in the data", folder, client["written_by"])
    return str(folder), client["client_state"]


def _read(engine, root: Path, tag: str | None, choice: Choice,
          needs_frozen: bool) -> tuple[Path, Path, dict]:
    """Returns the tag's folder, the checkpoint in it and its client state, if the engine can load it."""
    engine.passes.owned.check()
    folder, newest = find_checkpoint(root, tag)
    client = read_client_state(newest)
    check_fits(engine, folder, client, with_optimizer=_loads_optimizer(engine, choice),
               with_schedule=choice.schedule and not choice.module_only, strict=choice.strict,
               needs_frozen=needs_frozen)
    return folder, newest, client


def _loads_optimizer(engine, choice: Choice) -> bool:
    return choice.optimizer_states and not choice.module_only and engine.optimizer is not None


def _load_from(engine, newest: Path, client: dict, choice: Choice) -> None:
    with_optimizer = _loads_optimizer(engine, choice)
    engine.native.load(str(newest), weights=choice.custom_load_fn is None,
                       optimizer_state=with_optimizer, progress=not choice.module_only,
                       schedule=choice.schedule, strict=choice.strict)
    if choice.custom_load_fn is not None:
        # As DeepSpeed, whose checkpoints have frozen weights apart from the module's then.
        loads_frozen = engine.zero_optimization_stage() >= 2 and client.get("has_frozen", True)
        _load_weights_by(engine, choice.custom_load_fn, newest, loads_frozen)
    call_together(lambda: _write_extra_state(engine, client.get("extra_state", {})))
    if not choice.module_only:
        call_together(lambda: _load_schedule(engine, client, with_optimizer, choice.schedule))


def _load_weights_by(engine, custom_load_fn: Callable, path: Path, loads_frozen: bool) -> None:
    names = engine._names
    saved = call_together(lambda: _native.read_weights(str(path)))
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


def _gather_rates(engine) -> dict[int, list[float]]:
    """The rates of each stage's parameter groups, on rank 0; {} elsewhere. Collective."""
    texts = _native.gather_texts(json.dumps([stage_of(engine)[0], engine.get_lr()]))
    return dict(json.loads(text) for text in texts)


def _read_extra_state(engine) -> dict:
    return {name: module.get_extra_state()
            for name, module in engine._modules_with_extra_state().items()}


def _write_extra_state(engine, states: dict) -> None:
    modules = engine._modules_with_extra_state()
    for name in states.keys() & modules.keys():
        modules[name].set_extra_state(states[name])


def _load_schedule(engine, client: dict, with_optimizer: bool, with_schedule: bool) -> None:
    if engine.optimizer is None:
        return
    if client["rates"] is None:  # of a C++ program, which the engine's own state tells
        if engine.lr_scheduler is None and with_optimizer:
            engine.optimizer.show_rate()
        return engine.optimizer.pull_rate()
    if with_optimizer:  # rates belong to it
        own = rates_of(engine, client)
        for group, rate in zip(engine._param_groups(), own, strict=True) if own is not None else ():
            group["lr"] = rate
    if with_schedule and hasattr(engine.lr_scheduler, "load_state_dict"):
        engine.lr_scheduler.load_state_dict(client["lr_scheduler"])
    if with_optimizer != with_schedule:
        # As with DeepSpeed, the next update has the optimizer's rate, those after it the schedule's.
        engine.optimizer.hold_rate()
