#!/usr/bin/env python3
"""Makes tests/numerics/goldens/mu.json and base_shapes.bsh: thirty steps of the optimizers of the mup package.

    python scripts/goldens/make_mu_goldens.py tests/numerics/goldens

Needs torch 2.11 and mup 1.0.0; the test that reads the goldens (tests/numerics/mu_goldens_test.cc) needs no
Python. The model, its first values, its data and the form of a run are those of make_optimizer_goldens.py.
The .bsh file is what mup.save_base_shapes writes of a model whose layers have grown differently.
"""

import json
import pathlib
import sys

import mup
import torch
from mup.infshape import InfDim, InfShape

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from make_optimizer_goldens import STEPS, first_values, loss_of, numbers

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


def train(kind, params, base_shapes, clip):
    values = {key: torch.nn.Parameter(value.clone(), requires_grad=not key.endswith("scale"))
              for key, value in first_values().items()}
    for key, p in values.items():
        p.infshape = InfShape([InfDim(base, size) for base, size in zip(base_shape_of(key), p.shape)])
    mup.save_base_shapes({key: p.infshape for key, p in values.items()}, base_shapes)
    trained = {key: p for key, p in values.items() if p.requires_grad and not key.endswith("unused")}
    optimizer = getattr(mup, kind)(list(trained.values()), **params)
    run = dict(name=kind, program=f"mup 1.0.0: {kind}",
               optimizer=dict(type=kind, params={**params, "base_shapes": base_shapes.name}), gradient_clipping=clip,
               losses=[], after={})
    for step in range(STEPS):
        loss = loss_of(values, step)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(trained.values(), clip)
        optimizer.step()
        optimizer.zero_grad()
        run["losses"].append(float(f"{loss.item():.9g}"))
        if step in (0, STEPS - 1):
            run["after"][str(step + 1)] = {key: numbers(p) for key, p in trained.items()}
    return run


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    runs = [train(kind, params, folder / "base_shapes.bsh", clip)
            for kind, params in RUNS.items() for clip in (0.0, 0.3)]
    text = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    (folder / "mu.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
