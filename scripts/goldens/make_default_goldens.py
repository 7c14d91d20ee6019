#!/usr/bin/env python3
"""Makes tests/unit/config/goldens/defaults.json: the default of every key that DeepSpeed's own code tells.

    python scripts/goldens/make_default_goldens.py tests/unit/config/goldens

Needs deepspeed 0.19.6, of which the registry is the catalogue (0.19.8 has dropped elasticity, the 1-bit
optimizers, sparse attention and more); the test that reads the golden needs no Python. A row is [key, default, source].
The defaults are taken from the objects that DeepSpeed builds from an empty config (pydantic models, plain
classes, dictionaries), from the signatures of its schedules and optimizers, and from nowhere else.
"""

import enum
import inspect
import json
import logging
import pathlib
import sys
import typing

import deepspeed
import pydantic
import torch
from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.inference.config import DeepSpeedInferenceConfig
from deepspeed.inference.v2.config_v2 import RaggedInferenceEngineConfig
from deepspeed.elasticity.config import ElasticityConfig
from deepspeed.module_inject.autotp_config import AutoTPConfig
from deepspeed.runtime import constants, lr_schedules
from deepspeed.runtime.config import DeepSpeedConfig

# Attribute of DeepSpeedConfig to the key that it is read from, where the two differ.
SECTIONS = {
    "zero_config": "zero_optimization",
    "activation_checkpointing_config": "activation_checkpointing",
    "float16_config": "fp16",
    "bfloat16_config": "bf16",
    "flops_profiler_config": "flops_profiler",
    "autotuning_config": "autotuning",
    "hybrid_engine": "hybrid_engine",
    "pipeline": "pipeline",
    "data_efficiency_config": "data_efficiency",
    "aio_config": "aio",
    "compile_config": "compile",
    "timers_config": "timers.throughput",
    "tensor_parallel_config": "tensor_parallel",
    "expert_parallel_config": "expert_parallel",
    "checkpoint_config": "checkpoint",
    "monitor_config": "",
    "torch_autocast_enabled": "torch_autocast.enabled",
    "torch_autocast_dtype": "torch_autocast.dtype",
    "torch_autocast_lower_precision_safe_modules": "torch_autocast.lower_precision_safe_modules",
    "optimizer_name": "optimizer.type",
    "optimizer_legacy_fusion": "optimizer.legacy_fusion",
    "scheduler_name": "scheduler.type",
    "load_universal_checkpoint": "checkpoint.load_universal",
    "use_node_local_storage": "checkpoint.use_node_local_storage",
    "checkpoint_parallel_write_pipeline": "checkpoint.parallel_write.pipeline_stage",
    "grad_accum_dtype": "data_types.grad_accum_dtype",
    "param_dtype": "data_types.param_dtype",
    "buffer_dtype": "data_types.buffer_dtype",
    "use_data_before_expert_parallel_": "use_data_before_expert_parallelism",
    "compression_config": "compression_training",
    "nebula_config": "nebula",
    "amp_enabled": "amp.enabled",
    "sparse_gradients_enabled": "sparse_gradients",
}
SKIPPED = {
    "world_size", "zero_optimization_stage", "zero_enabled", "optimizer_params", "scheduler_params",
    "data_efficiency_enabled", "checkpoint_tag_validation_enabled", "checkpoint_tag_validation_fail",
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",  # resolved, not defaults
    "weight_quantization_config", "datastates_config", "comms_config", "global_rank", "elasticity_enabled",
    "amp_params", "pld_enabled", "pld_params", "curriculum_enabled_legacy", "curriculum_params_legacy",
    "mics_shard_size", "mics_hierarchial_params_gather",
}
# A section of the file that is no key of the registry, which lists it as one object.
WHOLE = "inference.zero."
DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int8: "int8"}


def plain(value):
    """The value as JSON writes it, or NotImplemented."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.dtype):
        return DTYPES.get(value, NotImplemented)
    if isinstance(value, (list, tuple)):
        items = [plain(item) for item in value]
        return NotImplemented if NotImplemented in items else items
    return NotImplemented


def model_classes(annotation):
    """The pydantic models that a field may hold."""
    if inspect.isclass(annotation) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in model_classes(part)]


def rows_of(prefix, value, source):
    def key(name):
        return f"{prefix}.{name}" if prefix else name

    if isinstance(value, pydantic.BaseModel):
        for name, field in type(value).model_fields.items():
            inner = getattr(value, name, None)
            models = model_classes(field.annotation)
            if inner is None and models:
                try:
                    inner = models[0]()
                except Exception:  # a model that has required fields tells no defaults
                    continue
            yield from rows_of(key(field.alias or name), inner, type(value).__name__)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from rows_of(key(name), inner, source)
    elif plain(value) is not NotImplemented:
        yield [prefix, plain(value), source]
    elif hasattr(value, "__dict__"):
        for name, inner in vars(value).items():
            if name.startswith("_"):
                continue
            yield from rows_of(key(name), inner, type(value).__name__)


def rows_of_signature(prefix, function):
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not inspect.Parameter.empty and plain(parameter.default) is not NotImplemented:
            yield [f"{prefix}.{name}", plain(parameter.default), function.__qualname__]


def all_rows():
    config = DeepSpeedConfig({"train_batch_size": 1})
    for name, value in vars(config).items():
        if name.startswith("eigenvalue_"):
            yield [name.replace("_", ".", 1), plain(value), "DeepSpeedConfig"]
        elif name not in SKIPPED and not name.startswith("_"):
            yield from rows_of(SECTIONS.get(name, name), value, "DeepSpeedConfig")
    yield from rows_of("comms_logger", CommsLoggerConfig(), "")
    yield from rows_of("inference", DeepSpeedInferenceConfig(), "")
    yield from rows_of("inference_v2", RaggedInferenceEngineConfig(), "")
    elasticity = vars(ElasticityConfig({"enabled": True, "max_train_batch_size": 8, "micro_batch_sizes": [2]}))
    for given in ("enabled", "max_acceptable_batch_size", "micro_batches"):
        del elasticity[given]
    yield from rows_of("elasticity", elasticity, "ElasticityConfig")
    yield ["progressive_layer_drop.theta", constants.PLD_THETA_DEFAULT, "constants.py"]
    yield ["progressive_layer_drop.gamma", constants.PLD_GAMMA_DEFAULT, "constants.py"]
    yield from rows_of("tensor_parallel.partition_config", AutoTPConfig(), "")
    for schedule in (lr_schedules.LRRangeTest, lr_schedules.OneCycle, lr_schedules.WarmupLR,
                     lr_schedules.WarmupCosineLR):
        yield from rows_of_signature("scheduler.params", schedule.__init__)
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.runtime.fp16.onebit import OnebitAdam, OnebitLamb, ZeroOneAdam
    for optimizer in (FusedAdam, DeepSpeedCPUAdam, FusedLamb, OnebitAdam, OnebitLamb, ZeroOneAdam):
        yield from rows_of_signature("optimizer.params", optimizer.__init__)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not deepspeed.__version__.startswith("0.19.6"):
        sys.exit(f"this needs deepspeed 0.19.6, not {deepspeed.__version__}")
    logging.disable(logging.CRITICAL)
    rows = {json.dumps(row[:2]): row for row in all_rows() if not row[0].startswith(WHOLE)}
    path = pathlib.Path(sys.argv[1]) / "defaults.json"
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows.values()) + "\n]\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
