#!/usr/bin/env python3
"""Makes tests/unit/data/goldens/curriculum with DeepSpeed's own data analyzer and data sampler.

    python scripts/goldens/make_sampler_goldens.py tests/unit/data/goldens/curriculum

Needs deepspeed 0.19.8. The folder gets the tokens of 120 samples, the analyzer's maps of two metrics, and
sampler.json: of each curriculum its ds_config section, and of every step in which samples became eligible which
those are, as the sampler's clusters say.
"""

import json
import math
import os
import pathlib
import random
import shutil
import sys
import tempfile

import numpy as np
import torch

import deepspeed
from deepspeed.runtime.data_pipeline.data_sampling.data_analyzer import DataAnalyzer
from deepspeed.runtime.data_pipeline.data_sampling.data_sampler import DeepSpeedDataSampler

SAMPLES, LENGTH, STEPS, BATCH = 120, 8, 40, 6


def make_tokens():
    """Words of which few are common: a sample has more rare ones the later it stands, roughly."""
    draw = random.Random(7)
    tokens = []
    for sample in range(SAMPLES):
        rare = draw.random() * sample / SAMPLES
        tokens += [draw.randrange(4, 60) if draw.random() < rare else draw.randrange(4) for _ in range(LENGTH)]
    return tokens + [0]  # the label of the last


def analyze(rows, folder):
    counts = torch.bincount(rows.flatten(), minlength=60).double()
    information = [-math.log(c / rows.numel()) if c > 0 else 0.0 for c in counts.tolist()]

    def rarity(batch):
        return torch.tensor([int(sum(information[t] for t in row)) for row in batch.tolist()])

    def spread(batch):
        return batch.max(dim=1).values - batch.min(dim=1).values

    analyzer = DataAnalyzer([row for row in rows], batch_size=10, metric_names=["vocabularyrarity", "spread"],
                            metric_functions=[rarity, spread], metric_types=["single_value_per_sample"] * 2,
                            metric_dtypes=[torch.int64] * 2, save_path=folder, collate_fn=torch.stack)
    analyzer.run_map_reduce()


def metric(folder, name, least, most, percentile=False, schedule="fixed_linear", **shape):
    prefix = f"{folder}/{name}/{name}_index_to_"
    return {"index_to_sample_path": prefix + ("sample_percentile_merged" if percentile else "sample"),
            "index_to_metric_path": prefix + "metric", "difficulty_type": "percentile" if percentile else "value",
            "clustering_type": "schedule_based", "min_difficulty": least, "max_difficulty": most,
            "schedule_type": schedule, "schedule_config": shape}


def curricula(folder):
    rare = metric(folder, "vocabularyrarity", 15, 36, total_curriculum_step=25, difficulty_step=3)
    tenths = metric(folder, "vocabularyrarity", 2, 7, percentile=True, schedule="fixed_root",
                    total_curriculum_step=20, difficulty_step=1, root_degree=2)
    spread = metric(folder, "spread", 3, 58, schedule="fixed_discrete", difficulty=[3, 20, 40, 58],
                    max_step=[4, 11, 30])
    return [{"vocabularyrarity": rare}, {"vocabularyrarity": tenths}, {"spread": spread, "vocabularyrarity": tenths}]


def sample(metrics, folder):
    config = {"seed": 1234, "data_sampling": {"num_epochs": 1000, "curriculum_learning": {
        "enabled": True, "data_cluster_path": folder, "curriculum_metrics": metrics}}}
    sampler = DeepSpeedDataSampler(config, SAMPLES, micro_batch_size=BATCH, data_parallel_rank=0,
                                   data_parallel_size=1, data_parallel_group=torch.distributed.group.WORLD,
                                   gradient_accumulation_steps=1, global_rank=0)
    clusters, batches = [], []
    for step, batch in zip(range(1, STEPS + 1), sampler):
        for cluster in sampler.data_clusters[len(clusters):]:
            clusters.append({"step": step, "samples": sorted(int(s) for s in cluster[0])})
        eligible = {s for cluster in clusters for s in cluster["samples"]}
        assert set(batch) <= eligible
        batches.append(len(eligible))
    return clusters


def keep(maps, folder, name):
    for part in ("index_to_sample", "index_to_metric", "index_to_sample_percentile_merged"):
        for end in ("idx", "bin"):
            shutil.copy(f"{maps}/{name}/{name}_{part}.{end}", folder / f"{name}_{part}.{end}")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    tokens = make_tokens()
    np.array(tokens, dtype="<u2").tofile(out / "tokens.bin")
    with tempfile.TemporaryDirectory() as scratch:
        store = torch.distributed.FileStore(f"{scratch}/store", 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        deepspeed.init_distributed("gloo", verbose=False)
        analyze(torch.tensor(tokens[:-1]).view(SAMPLES, LENGTH), f"{scratch}/maps")
        cases = []
        for i, metrics in enumerate(curricula(f"{scratch}/maps")):
            cases.append({"metrics": metrics, "clusters": sample(metrics, f"{scratch}/clusters{i}")})
        for name in ("vocabularyrarity", "spread"):
            keep(f"{scratch}/maps", out, name)
    text = json.dumps({"deepspeed": deepspeed.__version__, "batch": BATCH, "length": LENGTH, "cases": cases})
    for name in ("vocabularyrarity", "spread"):  # maps lie beside the file
        text = text.replace(f"{scratch}/maps/{name}/", "")
    (out / "sampler.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
