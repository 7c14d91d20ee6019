#!/usr/bin/env python3
"""Makes the goldens of tests/unit/config/goldens with DeepSpeed.

    python scripts/goldens/make_config_goldens.py tests/unit/config/goldens

Needs deepspeed 0.19.6 (0.19.8 has no elasticity any more) and what it imports (torch, numpy,
packaging); the tests that read the goldens need no Python.

elasticity.json: what compute_elastic_config answers. A case is
  [cap, micro batches, min, max, larger, version, GPUs per node, model parallel, GPUs, how]
with how = how the number of GPUs was given ("argument", "environment", or "" for not at all), followed
by [batch, valid GPUs, micro batch] or the name of the exception. More than 12 valid numbers are
written as [count, first, last, sum].
batch_sizes.json: [train, micro, accumulation, world size, [train, micro, accumulation] or null].
memory_estimates.json: [params, largest layer, GPUs per node, nodes, rows], a row being
  [stage, offload optimizer, offload params, zero init, GPU bytes, CPU bytes].
"""

import json
import logging
import os
import pathlib
import random
import sys

import deepspeed
from deepspeed.elasticity import compute_elastic_config
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

# Micro-batch lists as people write them, and some that are odd on purpose.
MICRO_LISTS = [[2, 4, 6], [8, 12, 16, 17], [1, 2, 3, 7], [8, 10, 12], [1], [4], [3, 5, 7], [64, 32, 16],
               [6, 6, 4], [1, 1], [13, 17, 19, 23], [5, 10, 25, 50], [100], [7, 2], [1, 2, 4, 8, 16, 32, 64]]
CAPS = [1, 7, 24, 32, 100, 127, 500, 1680, 2000, 9792, 10000, 65536, 1000000]


def elasticity_answer(case):
    cap, micro, least, most, larger, version, per_node, parallel, gpus, how = case
    section = {"enabled": True, "max_train_batch_size": cap, "micro_batch_sizes": micro, "min_gpus": least,
               "max_gpus": most, "prefer_larger_batch": larger, "version": version,
               "num_gpus_per_node": per_node, "model_parallel_size": parallel}
    os.environ.pop("WORLD_SIZE", None)
    if how == "environment":
        os.environ["WORLD_SIZE"] = str(gpus)
    try:
        answer = compute_elastic_config({"elasticity": section}, deepspeed.__version__,
                                        world_size=gpus if how == "argument" else 0)
    except Exception as error:  # whatever the reference does is what is recorded
        return type(error).__name__
    batch, valid = int(answer[0]), answer[1]
    valid = None if valid is None else [int(count) for count in valid]
    if valid and len(valid) > 12:
        valid = [len(valid), valid[0], valid[-1], sum(valid)]
    return [batch, valid, int(answer[2]) if len(answer) == 3 else None]


def elasticity_cases():
    rng = random.Random(19)
    # The vectors of DeepSpeed's own tests.
    yield [10000, [8, 12, 16, 17], 32, 1500, True, 0.1, 1, 1, 0, ""]
    yield [10000, [8, 12, 16, 17], 32, 1500, True, 0.1, 1, 1, 64, "argument"]
    yield [10000, [8, 12, 16, 17], 32, 1500, True, 0.1, 1, 1, 128, "argument"]
    yield [32, [1, 2, 3, 7], 1, 1500, True, 0.1, 1, 1, 4, "argument"]
    yield [2000, [2, 4, 6], 1, 10000, True, 0.1, 1, 1, 0, ""]
    for version in (0.1, 0.2, 0.2):
        for micro in MICRO_LISTS:
            for cap in CAPS:
                least = rng.choice([1, 1, 1, 2, 8, 30])
                most = rng.choice([10000, 10000, 1500, 64, 8, least])
                if most < least:
                    most = least
                per_node, parallel = 1, 1
                if version == 0.2:
                    per_node = rng.choice([1, 1, 2, 4, 8, 6, 3])
                    parallel = rng.choice([1, 1, 1, 2, 3])
                gpus = rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 48, 64, 128, 240])
                how = rng.choice(["argument", "environment"] if version == 0.2 else ["argument", ""])
                if parallel > 1:
                    how = "environment"  # the argument is taken for two different things
                yield [cap, micro, least, most, rng.random() < 0.7, version, per_node, parallel,
                       gpus if how else 0, how]


def batch_answer(train, micro, accumulation, world_size):
    config = DeepSpeedConfig.__new__(DeepSpeedConfig)
    config.train_batch_size = train
    config.train_micro_batch_size_per_gpu = micro
    config.gradient_accumulation_steps = accumulation
    config.world_size = world_size
    try:
        config._configure_train_batch_size()
    except AssertionError:
        return None
    return [config.train_batch_size, config.train_micro_batch_size_per_gpu,
            config.gradient_accumulation_steps]


def batch_cases():
    for train in (None, 1, 2, 10, 32, 33, 1024):
        for micro in (None, 1, 4, 16, 18):
            for accumulation in (None, 1, 2, 3):
                for world_size in (1, 2, 3, 8):
                    yield [train, micro, accumulation, world_size,
                           batch_answer(train, micro, accumulation, world_size)]


def estimate_rows(params, largest, per_node, nodes):
    for optimizer in (True, False):
        cpu, gpu = estimate_zero2_model_states_mem_needs(params, per_node, nodes, optimizer)
        yield [2, optimizer, False, False, gpu, cpu]
    for optimizer, parameters in ((True, True), (True, False), (False, False)):
        for zero_init in (True, False):
            cpu, gpu, _ = estimate_zero3_model_states_mem_needs(params, largest, per_node, nodes, optimizer,
                                                                parameters, zero_init)
            yield [3, optimizer, parameters, zero_init, gpu, cpu]


def estimate_cases():
    models = [(2783959040, 65798144), (2851000000, 32000000), (1, 1), (124439808, 38597376),
              (6738415616, 131072000), (70553706496, 262144000), (1000000000007, 3000000019), (999, 998)]
    for params, largest in models:
        for per_node in (1, 2, 3, 8):
            for nodes in (1, 2, 3, 7, 64):
                yield [params, largest, per_node, nodes, list(estimate_rows(params, largest, per_node, nodes))]


def write(path, cases):
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text("[\n" + lines + "\n]\n", encoding="utf-8")
    print(path)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not deepspeed.__version__.startswith("0.19.6"):
        sys.exit(f"this needs deepspeed 0.19.6, not {deepspeed.__version__}")
    logging.disable(logging.CRITICAL)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "elasticity.json", [case + [elasticity_answer(case)] for case in elasticity_cases()])
    write(folder / "batch_sizes.json", list(batch_cases()))
    write(folder / "memory_estimates.json", list(estimate_cases()))


if __name__ == "__main__":
    main()
