#!/usr/bin/env python3
"""Makes tests/numerics/goldens/mu.json and base_shapes.bsh: thirty steps of the optimizers of the mup package.

    python scripts/goldens/make_mu_goldens.py tests/numerics/goldens

Needs torch 2.11, mup 1.0.0 and deepspeed 0.19.8; the test that reads the goldens
(tests/numerics/mu_goldens_test.cc) needs no Python. The model, its first values, its data and the form of a run are
those of make_optimizer_goldens.py.
The .bsh file is what mup.save_base_shapes writes of a model whose layers have grown differently.
In bf16 and fp16 the optimizers run inside DeepSpeed's FP16_UnfusedOptimizer, as the engine has them; it is kept from
stepping once with zero gradients when it is built, which decays weights and counts as a step. There a run has a
"world_size", too: what two ranks' gradients are rounded to before and after they are added shows in the losses.
"""

import itertools
import json
import os
import pathlib
import sys

os.environ["DS_ACCELERATOR"] = "cpu"

import mup
import torch
from mup.infshape import InfDim, InfShape

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from make_onebit_goldens import DTYPES, SCALE, loss_of
from make_optimizer_goldens import STEPS, first_values, numbers

RUNS = {
    "MuAdam": dict(lr=0.02, betas=[0.9, 0.95], weight_decay=0.1),
    "MuAdamW": dict(lr=0.02, betas=[0.9, 0.95], eps=1e-6, weight_decay=0.1),
    "MuSGD": dict(lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.05),
}


def base_shape_of(name):
    if name.endswith("unused"):
        return [None]
    if name == "table":
        return [None, 2]
    if name.endswith(".w"):
        return [2, 4] if name.startswith("layer.1") else [2, 2]
    return [2]


def wrap(optimizer, precision, clip):
    from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
    FP16_UnfusedOptimizer.initialize_optimizer_states = lambda self: None
    return FP16_UnfusedOptimizer(optimizer, low_precision_dtype=DTYPES[precision], clip_grad=clip, verbose=False,
                                 static_loss_scale=SCALE if precision == "fp16" else 1.0)


def train(kind, params, base_shapes, clip, precision, world_size):
    values = {key: torch.nn.Parameter(value.to(DTYPES[precision], copy=True), requires_grad=not key.endswith("scale"))
              for key, value in first_values().items()}
    for key, p in values.items():
        p.infshape = InfShape([InfDim(base, size) for base, size in zip(base_shape_of(key), p.shape)])
    mup.save_base_shapes({key: p.infshape for key, p in values.items()}, base_shapes)
    trained = {key: p for key, p in values.items() if p.requires_grad and not key.endswith("unused")}
    optimizer = getattr(mup, kind)(list(trained.values()), **params)
    run = dict(name=kind, program=f"mup 1.0.0: {kind}", precision=precision,
               optimizer=dict(type=kind, params={**params, "base_shapes": base_shapes.name}), gradient_clipping=clip,
               losses=[], after={})
    if precision != "fp32":
        optimizer = wrap(optimizer, precision, clip)
        run["program"] += ", DeepSpeed 0.19.8"
        run["world_size"] = world_size
    for step in range(STEPS):
        mean = 0.0
        for rank in range(world_size):
            loss = loss_of(values, step * world_size + rank, world_size)
            (loss * (SCALE if precision == "fp16" else 1.0)).backward()
            mean += loss.item() / world_size
        for p in trained.values():
            p.grad /= world_size
        if clip and precision == "fp32":
            torch.nn.utils.clip_grad_norm_(trained.values(), clip)
        optimizer.step()
        optimizer.zero_grad()
        run["losses"].append(float(f"{mean:.9g}"))
        if step in (0, STEPS - 1):
            run["after"][str(step + 1)] = {key: numbers(p.float()) for key, p in trained.items()}
    return run


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    import deepspeed
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29661")
    deepspeed.init_distributed("gloo")
    folder = pathlib.Path(sys.argv[1])
    runs = [train(kind, params, folder / "base_shapes.bsh", clip, precision, world_size)
            for precision, (kind, params), clip in itertools.product(DTYPES, RUNS.items(), (0.0, 0.3))
            for world_size in ((1,) if precision == "fp32" else (1, 2))]
    text = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    (folder / "mu.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
