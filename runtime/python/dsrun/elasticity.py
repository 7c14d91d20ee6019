"""``deepspeed.elasticity``, as up to DeepSpeed 0.19.7: a batch size for many numbers of GPUs."""

from __future__ import annotations

import json
import os

from . import _native

__all__ = ["ElasticityConfigError", "ElasticityError", "ElasticityIncompatibleWorldSize",
           "compute_elastic_config", "elasticity_enabled"]


class ElasticityError(Exception):
    """The base of this module's errors."""


class ElasticityConfigError(ElasticityError):
    """The section "elasticity" is missing or not valid, or no batch size fits it."""


class ElasticityIncompatibleWorldSize(ElasticityError):
    """The section is valid, but not for this number of GPUs."""


def elasticity_enabled(ds_config: dict) -> bool:
    """Returns the value of elasticity.enabled in ds_config; False without it."""
    return bool(ds_config.get("elasticity", {}).get("enabled", False))


def _solve(ds_config: dict, gpus: int | None):
    return _native.find_elastic_batch(json.dumps({"elasticity": ds_config["elasticity"]}), gpus)


def compute_elastic_config(ds_config: dict, target_deepspeed_version: str = "0.19.8",
                           world_size: int = 0,
                           return_microbatch: bool = False
                           ) -> tuple[int, list[int]] | tuple[int, list[int], int | None]:
    """Returns (train batch size, valid numbers of GPUs[, micro-batch size per GPU]).

    The micro-batch size comes with a world_size or with return_microbatch=True, which needs one;
    version 0.2 of the section takes it from $WORLD_SIZE, if it is not given. All versions of
    DeepSpeed count as compatible.
    """
    if not isinstance(ds_config, dict):
        raise ValueError(f"ds_config is a dictionary, not {type(ds_config).__name__}")
    if "elasticity" not in ds_config:
        raise ElasticityConfigError("the config has no section \"elasticity\"")
    if not elasticity_enabled(ds_config):
        raise ElasticityConfigError("elasticity.enabled is not true")
    by_node = float(ds_config["elasticity"].get("version", 0.2)) == 0.2
    gpus = world_size or (int(os.environ.get("WORLD_SIZE", "0")) if by_node else 0)
    try:
        batch, valid, micro = _solve(ds_config, gpus or None)
    except ValueError as error:
        if gpus and _is_valid(ds_config, by_node):
            raise ElasticityIncompatibleWorldSize(str(error)) from None
        raise ElasticityConfigError(str(error)) from None
    if world_size == 0 and not return_microbatch:
        return batch, valid
    if micro is None:
        raise ElasticityConfigError("the micro-batch size depends on the number of GPUs: give "
                                    "world_size")
    return batch, valid, micro


def _is_valid(ds_config: dict, by_node: bool) -> bool:
    """Whether the section fits some number of GPUs."""
    section = ds_config["elasticity"]
    one_node = int(section.get("num_gpus_per_node", 1))
    try:
        _solve(ds_config, max(one_node, int(section.get("model_parallel_size", 1)))
               if by_node else None)
    except ValueError:
        return False
    return True
