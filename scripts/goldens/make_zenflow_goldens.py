#!/usr/bin/env python3
"""Makes tests/numerics/goldens/zenflow.json: thirty steps of ZenFlow in DeepSpeed.

    python scripts/goldens/make_zenflow_goldens.py tests/numerics/goldens

Needs torch 2.11 and deepspeed 0.19.8 with a compiler for its CPU kernels; the test that reads the goldens
(tests/numerics/zenflow_test.cc) needs no Python. The model, its first values, its data and the form of a run are
those of make_optimizer_goldens.py; a run has the "zenflow" section of its ds_config beside that.
DeepSpeed's engine runs as it is: ZeRO stage 2 with the optimizer on the CPU, its selective AdamW, its CPU Adam.
There "gradient_accumulation_steps" becomes update_interval: a micro-batch is a step. Two things are mended: 0.19.8
keeps matrices transposed in its flat buffers, and reads them back as they are (transpose_weights); and it measures the
columns of a matrix in the wrong place where a vector lies before it in a bucket, so that buckets are too small for both.
"""

import json
import os
import pathlib
import sys

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="localhost", MASTER_PORT="29677", RANK="0", LOCAL_RANK="0",
                  WORLD_SIZE="1")

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from make_optimizer_goldens import STEPS, WIDTH, first_values, loss_of, numbers

ADAMW = dict(type="AdamW", params=dict(lr=0.02, betas=[0.9, 0.95], weight_decay=0.1))
RUNS = {
    "every_second": dict(topk_ratio=0.4, select_strategy="step", select_interval=6, update_interval=2),
    "warm_up": dict(topk_ratio=0.4, select_strategy="step", select_interval=10, update_interval=1,
                    full_warm_up_rounds=4),
    "one_column": dict(topk_ratio=0.1, select_strategy="step", select_interval=8, update_interval=4),
}


class Model(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.names = {}
        for name, value in first_values().items():
            if name.endswith("unused"):
                continue
            self.names[name] = name.replace(".", "_")
            self.register_parameter(self.names[name],
                                    torch.nn.Parameter(value.clone(), requires_grad=not name.endswith("scale")))

    def values(self):
        return {name: getattr(self, ours) for name, ours in self.names.items()}

    def forward(self, step):
        return loss_of(self.values(), step)


def transpose_weights(self, group):
    """In place of DeepSpeedZeroOptimizer._update_model_bit16_weights, whose views scramble every matrix."""
    flat = self.bit16_groups_flat[group]
    for p, meta, offset in zip(self.round_robin_bit16_groups[group], self.round_robin_bit16_meta[group],
                               self.round_robin_bit16_offsets[group]):
        own = flat.narrow(0, offset, meta.numel())
        p.data = own.view(meta.shape[::-1]).t() if len(meta.shape) == 2 else own.view(meta.shape)
    for i, p in enumerate(self.bit16_groups[group]):
        p.data = self.round_robin_bit16_groups[group][self.round_robin_bit16_indices[group][i]].data


def train(name, zenflow):
    import deepspeed
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
    DeepSpeedZeroOptimizer._update_model_bit16_weights = transpose_weights
    model = Model()
    config = dict(train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=1, gradient_clipping=0.0,
                  optimizer=ADAMW, zero_optimization=dict(stage=2, reduce_bucket_size=WIDTH * WIDTH,
                                                          offload_optimizer=dict(device="cpu"), zenflow=zenflow))
    engine, _, _, _ = deepspeed.initialize(model=model, config=config, dist_init_required=True)
    run = dict(name=name, program="DeepSpeed 0.19.8: ZenFlow", optimizer=ADAMW, zenflow=zenflow,
               gradient_clipping=0.0, losses=[], after={})
    for step in range(STEPS):
        loss = engine(step)
        engine.backward(loss)
        engine.step()
        run["losses"].append(float(f"{loss.item():.9g}"))
        if step in (0, STEPS - 1):
            run["after"][str(step + 1)] = {key: numbers(p) for key, p in model.values().items() if p.requires_grad}
    return run


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    path = pathlib.Path(sys.argv[1]) / "zenflow.json"
    runs = [train(name, zenflow) for name, zenflow in RUNS.items()]
    path.write_text(json.dumps(dict(runs=runs), separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n",
                    encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
