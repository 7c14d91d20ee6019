"""ds_config as Python reads it. The engine checks its values: C++ has all of ds_config."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import torch


# Sections that this package reads itself.
_SECTIONS = ("optimizer", "scheduler", "zero_optimization", "bf16", "bfloat16", "fp16", "torch_autocast",
             "pipeline")


def _make_object(pairs: list[tuple]) -> dict:
    """Returns the object of JSON with these pairs of keys and values; refuses a key that is twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        raise ValueError(f"has the key {', '.join(twice)} twice in one section: keep one of them")
    return made


def _read_file(path: Path) -> dict:
    try:
        return json.loads(path.read_text(), object_pairs_hook=_make_object)
    except ValueError as error:
        raise ValueError(f"the config {path}: {error}") from None


def _check_types(config: dict) -> dict:
    """Returns the config without an optimizer and a scheduler that are None, which mean none.

    Nor have these two params that are None.
    """
    for name in _SECTIONS:
        value = config.get(name)
        if value is not None and not isinstance(value, dict):
            raise ValueError(f"{name} of the config is {value!r}: it is a section, an object of "
                             "JSON with its keys")
    for name in ("bf16", "bfloat16", "fp16", "torch_autocast"):
        if (config.get(name) or {}).get("enabled") == "auto":
            raise ValueError(f'{name}.enabled of the config is "auto", which only the Trainer of '
                             "transformers and Accelerate replace: write true or false")
    checked = dict(config)
    for name in ("optimizer", "scheduler"):
        value = checked.get(name) or {}
        params = value.get("params", {})
        if params is not None and not isinstance(params, dict):
            raise ValueError(f"{name}.params of the config is {params!r}: it is a section, an object "
                             "of JSON with its keys")
        if checked.get(name, ...) is None:
            del checked[name]
        elif params is None:
            checked[name] = {key: item for key, item in value.items() if key != "params"}
    return checked if checked != config else config


def read_config(args: Any, config: dict | str | os.PathLike | None,
                config_params: dict | str | os.PathLike | None) -> dict:
    """Returns ds_config as a dictionary: `config`, else `config_params`, or the config of `args`."""
    given = config if config is not None else config_params
    of_args = getattr(args, "deepspeed_config", None)
    if given is not None and of_args is not None:
        raise ValueError("initialize() has two configs: remove the argument config, or "
                         f"--deepspeed_config {of_args}")
    given = of_args if given is None else given
    if given is None:
        raise ValueError("initialize() needs a config: a dictionary or the path of a ds_config")
    if isinstance(given, (str, os.PathLike)):
        given = _read_file(Path(given))
    if not isinstance(given, dict):
        raise TypeError(f"config is a dictionary or a path, not {type(given).__name__}")
    return _check_types(given)


def section(config: dict, name: str) -> dict:
    """Returns a section of ds_config, {} without one."""
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def to_json(value: Any) -> Any:
    """Returns ds_config with values of JSON alone, which has no infinity.

    Two keys may be infinite: steps_per_print, as Accelerate sets it, for never, and
    gradient_clipping for no clipping.
    """
    if isinstance(value, dict):
        finite = {**value}
        if value.get("steps_per_print") == math.inf:
            del finite["steps_per_print"]
        if value.get("gradient_clipping") == math.inf:
            finite["gradient_clipping"] = 0.0
        for key, item in finite.items():
            if isinstance(item, float) and not math.isfinite(item):
                raise ValueError(f"{key} of the config is {item}: give a finite number, or remove it")
        return {key: to_json(item) for key, item in finite.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if hasattr(value, "item"):
        return value.item()
    return value


def take_python_keys(config: dict) -> dict:
    """Removes the keys that Python alone reads, and returns zero_optimization.leaf_module."""
    config.pop("dataloader_drop_last", None)  # Engine.make_loader's
    return section(config, "zero_optimization").pop("leaf_module", {})


def training_dtype(config: dict) -> torch.dtype | None:
    """Returns the dtype of bf16 or fp16 training, None for fp32."""
    name = "bf16" if "bf16" in config else "bfloat16"
    if section(config, name).get("enabled") is True:
        return torch.bfloat16
    if section(config, "fp16").get("enabled") is True:
        return torch.float16
    return None


def autocast_dtype(config: dict) -> torch.dtype | None:
    """Returns the dtype of torch_autocast, None if it is off."""
    autocast = section(config, "torch_autocast")
    if not autocast.get("enabled"):
        return None
    name = str(autocast.get("dtype")).removeprefix("torch.")
    return torch.float16 if name in ("float16", "fp16", "half") else torch.bfloat16


def casts_inputs(config: dict) -> bool:
    """Returns whether inputs are cast to fp16 (fp16.auto_cast)."""
    return training_dtype(config) == torch.float16 and bool(section(config, "fp16").get("auto_cast"))


# Sections that choose data, or layers of models that dsrun builds.
_NOT_OF_MODULES = ("curriculum_learning", "data_efficiency", "expert_parallel", "moe")
# Sizes of parallelism inside of models that dsrun builds.
_SIZES_NOT_OF_MODULES = (("tensor_parallel", "autotp_size"), ("", "sequence_parallel_size"))


def check_sections(config: dict, is_pipeline: bool) -> None:
    """Raises an error if the config asks for more than Python modules are trained with."""
    for name in _NOT_OF_MODULES:
        if section(config, name).get("enabled"):
            raise NotImplementedError(f"{name} of the config is for models of dsrun train, and has no "
                                      "effect on a Python module: set enabled to false, or remove it")
    for name, key in _SIZES_NOT_OF_MODULES:
        size = (section(config, name) if name else config).get(key)
        if isinstance(size, int) and size > 1:
            raise NotImplementedError(
                f"{name + '.' if name else ''}{key} of the config is {size}: Python modules are "
                "trained with data parallelism, ZeRO and pipelines; remove it")
    if config.get("gradient_clipping") == "auto":
        raise ValueError('gradient_clipping of the config is "auto": give a number. Trainer and '
                         "Accelerate fill in such values")
    stages = section(config, "pipeline").get("stages")
    if isinstance(stages, int) and stages > 1 and not is_pipeline:
        raise ValueError(f"pipeline.stages of the config is {stages}, and the model is no "
                         "PipelineModule: make it one, or remove the key")
