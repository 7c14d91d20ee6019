"""What initialize() refuses of a module and its config."""

from __future__ import annotations

import json
import re

import torch
from torch import nn

from . import _native, optimizers
from .config import training_dtype
from .together import compare_ranks


def _find_difference(key: str, one, other) -> tuple | None:
    """Returns (key, value, other value) of a key with different values, None without one."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            full = f"{key}.{name}" if key else name
            found = _find_difference(full, one.get(name), other.get(name))
            if found is not None:
                return found
        return None
    return None if one == other or key.endswith("path") else (key, one, other)


def check_same_on_ranks(config: dict) -> None:
    """Refuses a config that is another one on another rank; paths may differ. Collective.

    `config` has values of JSON alone.
    """
    def describe(first, rank, other):
        found = _find_difference("", first, other)
        if found is None:
            return ""
        key, one, another = found
        return (f"{key} of the config is {json.dumps(one)} on rank 0 and {json.dumps(another)} on "
                f"rank {rank}: give initialize() one config and one optimizer on all ranks")

    compare_ranks(config, describe)


def _loses_writes(config: dict) -> str:
    """Returns where writes of a forward pass into parameters are lost; "" if they are kept."""
    dtype = training_dtype(config)
    if dtype is not None:
        return f"in {str(dtype).removeprefix('torch.')}"
    if _native.shards_parameters(json.dumps(config, allow_nan=False)):
        return "where ZeRO shards or offloads the parameters"
    return ""


def check_renormalised(module: nn.Module, config: dict) -> None:
    """Refuses trained embeddings with max_norm where the engine would lose what they write."""
    lost = _loses_writes(config)
    for name, part in module.named_modules() if lost else ():
        if (isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.max_norm is not None
                and part.weight.requires_grad):
            raise NotImplementedError(
                f"{name or type(part).__name__} has max_norm={part.max_norm}: its forward writes "
                f"into its weight, which is lost {lost}; train in fp32 at stage 2, or set max_norm to "
                "None and clip the norms between steps within zero.GatheredParameters")


def check_kept_in_fp32(module: nn.Module, dtype: torch.dtype | None) -> None:
    """Refuses parameters that transformers keeps in fp32 in a 16-bit model, as T5's `wo` in fp16."""
    if dtype is None:
        return
    for prefix, part in module.named_modules():
        names = set(getattr(part, "_keep_in_fp32_modules_strict", None) or ())
        if dtype == torch.float16:
            names.update(getattr(part, "_keep_in_fp32_modules", None) or ())
        patterns = [re.compile(name.replace("*", ".*")) for name in names]
        for name, _ in part.named_parameters(prefix) if patterns else ():
            if any(pattern.search(name, len(prefix)) for pattern in patterns):
                raise NotImplementedError(
                    f"{name} is to stay in fp32 (_keep_in_fp32_modules and _keep_in_fp32_modules_strict "
                    "of transformers): the engine trains all parameters in "
                    f"{str(dtype).removeprefix('torch.')}; train in fp32, or in bf16 if the model allows "
                    "it, or set the attribute to None before initialize()")


def check_layers(module: nn.Module) -> None:
    """Refuses parameters without a shape, and those whose gradients are sparse tensors."""
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if nn.parameter.is_lazy(tensor):
            raise ValueError(f"{name} has no shape yet: it is of a lazy module, which takes its shape "
                             "from the first input. Call the model once before initialize()")
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            raise NotImplementedError(f"{name or 'the model'} is compiled by torch.jit.script, and takes no "
                                      "hooks: give the module itself, or compile it by torch.compile")
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.sparse \
                and part.weight.requires_grad:
            raise NotImplementedError(
                f"{name or 'the model'} is {type(part).__name__}(sparse=True), and the engine adds up "
                "dense gradients: make it with sparse=False, which has the same values. Optimizers "
                "that look at all rows, such as AdamW, train it like that anyway")


def check_all_grouped(module: nn.Module, groups: optimizers.Groups) -> None:
    """Checks that the groups have the trained parameters of the module, and no others."""
    own = {id(parameter) for parameter in module.parameters()}
    for index, group in enumerate(groups.param_groups):
        for parameter in group["params"]:
            if id(parameter) not in own:
                raise ValueError(
                    f"group {index} of the optimizer has a parameter of shape {tuple(parameter.shape)} "
                    "that the model does not have, and which would not be trained: make it a "
                    "parameter of the model")
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in groups.index:
            raise ValueError(f"parameter {name} needs gradients, but is in no parameter group of "
                             "the optimizer: add it, or freeze it (requires_grad_(False))")
