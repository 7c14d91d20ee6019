#!/usr/bin/env python3
"""Makes the goldens of the optimizers with PyTorch and DeepSpeed.

    python scripts/goldens/make_optimizer_goldens.py tests

Needs torch 2.11 and deepspeed 0.19.8 with a compiler for its CPU kernels, without its CUDA ones; the
tests that read the goldens need no Python.

tests/unit/optim/goldens/steps.json: one update from the same state. A case names what computed it, the
"optimizer" section of its ds_config, the number of the update, the parameters' shapes, and per parameter
the values before ("before": parameter, gradient, state by name) and after ("after": parameter, state).
tests/numerics/goldens/optimizers.json: "first" values of the tiny model of tests/ranks/tiny_model.h, and
runs of 30 steps: losses, and the parameters after the first and after the last step.
"""

import json
import math
import os
import pathlib
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiled, Muon computes the same, slower for matrices this small

import torch

STEPS = 30
LAYERS, VOCABULARY, WIDTH, SAMPLES, TOKENS = 3, 11, 5, 24, 4


class FormulaLamb(torch.optim.Optimizer):
    """DeepSpeed's FusedLamb exists in CUDA only: its kernel, operation by operation."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, bias_correction=True,
                 eps_inside_sqrt=False, max_coeff=10.0, min_coeff=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.correct, self.inside, self.limits = bias_correction, eps_inside_sqrt, (min_coeff, max_coeff)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                m, v, t = state["exp_avg"], state["exp_avg_sq"], state["step"]
                m.copy_(beta1 * m + (1 - beta1) * p.grad)
                v.copy_(beta2 * v + (1 - beta2) * p.grad * p.grad)
                root = (v + group["eps"]).sqrt() if self.inside else v.sqrt() + group["eps"]
                update = m / root + group["weight_decay"] * p
                size = group["lr"]
                if self.correct:
                    size = size * math.sqrt(1 - beta2**t) / (1 - beta1**t)
                weight, length = p.norm(), update.norm()
                ratio = 1.0
                if weight != 0 and length != 0:
                    ratio = float((weight / length).clamp(*self.limits))
                p.sub_(update, alpha=size * ratio)


def deepspeed_cpu(module, name):
    def make(params, **options):
        return getattr(__import__(f"deepspeed.ops.{module}", fromlist=[name]), name)(params, **options)
    return make


def muon(params, lr=0.02, momentum=0.95, ns_method="gram", muon_lr=None, adam_lr=None, weight_decay=0.0):
    """As the engine splits the parameters and their settings; Newton-Schulz in fp32, as where half precision
    is not supported."""
    from deepspeed.runtime.zero.muon import muon_optimizer, original_muon
    original_muon.ns_compute_dtype = lambda method: torch.float32
    matrices = dict(params=[p for p in params if p.dim() > 1], use_muon=True, lr=muon_lr or lr, momentum=momentum,
                    weight_decay=weight_decay, ns_method=ns_method)
    others = dict(params=[p for p in params if p.dim() < 2], use_muon=False, lr=adam_lr or lr,
                  weight_decay=weight_decay)
    return muon_optimizer.MuonWithAuxAdam([group for group in (matrices, others) if group["params"]])


def grouped(make):
    """No decay on vectors; the rate falls by 0.8 with every block before the last."""
    return lambda params, lr, weight_decay, **options: make(
        [dict(params=[p], lr=lr * 0.8**(LAYERS + 1 - p.block), weight_decay=weight_decay if p.dim() > 1 else 0.0)
         for p in params], lr=lr, **options)


def case(program, make, section, names, **options):
    return dict(program=program, make=lambda params: make(params, **options),
                optimizer=dict(type=section, params={**options, **names.pop("_config", {})}), names=names)


TORCH = f"torch.optim of PyTorch {torch.__version__.split('+')[0]}"
DEEPSPEED = "DeepSpeed 0.19.8"
MOMENTS = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
BUFFER = {"momentum_buffer": "momentum_buffer"}

CASES = {
    "adam_l2": case(f"{TORCH}: Adam", torch.optim.Adam, "Adam", {**MOMENTS, "_config": {"adam_w_mode": False}},
                    lr=0.02, betas=(0.8, 0.95), weight_decay=0.1),
    "adamw": case(f"{TORCH}: AdamW", torch.optim.AdamW, "AdamW", dict(MOMENTS), lr=0.02, weight_decay=0.1),
    "adamw_deepspeed": case(f"{DEEPSPEED}: DeepSpeedCPUAdam", deepspeed_cpu("adam", "DeepSpeedCPUAdam"), "AdamW",
                            dict(MOMENTS), lr=0.02, betas=(0.9, 0.95), weight_decay=0.1),
    "sgd": case(f"{TORCH}: SGD", torch.optim.SGD, "SGD", {}, lr=0.2, weight_decay=0.01),
    "sgd_momentum": case(f"{TORCH}: SGD", torch.optim.SGD, "SGD", dict(BUFFER), lr=0.1, momentum=0.9,
                         dampening=0.3, weight_decay=0.01),
    "sgd_nesterov": case(f"{TORCH}: SGD", torch.optim.SGD, "SGD", dict(BUFFER), lr=0.1, momentum=0.9,
                         nesterov=True),
    "adagrad": case(f"{TORCH}: Adagrad", torch.optim.Adagrad, "Adagrad", {"sum": "sum"}, lr=0.05, lr_decay=0.01,
                    weight_decay=0.1),
    "adagrad_defaults": case(f"{TORCH}: Adagrad", torch.optim.Adagrad, "Adagrad", {"sum": "sum"}),
    "adagrad_deepspeed": case(f"{DEEPSPEED}: DeepSpeedCPUAdagrad", deepspeed_cpu("adagrad", "DeepSpeedCPUAdagrad"),
                              "Adagrad", {"sum": "exp_avg_sq"}, lr=0.05, weight_decay=0.1),
    "lion": case(f"{DEEPSPEED}: DeepSpeedCPULion", deepspeed_cpu("lion", "DeepSpeedCPULion"), "Lion",
                 {"exp_avg": "exp_avg"}, lr=0.01, weight_decay=0.1),
    "lamb": case(f"{DEEPSPEED}: formula of FusedLamb", FormulaLamb, "Lamb", dict(MOMENTS), lr=0.05,
                 weight_decay=0.1),
    "lamb_eps_inside": case(f"{DEEPSPEED}: formula of FusedLamb", FormulaLamb, "Lamb", dict(MOMENTS), lr=0.05,
                            eps=1e-3, eps_inside_sqrt=True, bias_correction=False, max_coeff=0.5),
    "adamw_groups": case(f"{TORCH}: AdamW, groups", grouped(torch.optim.AdamW), "AdamW", dict(MOMENTS), lr=0.02,
                         weight_decay=0.1),
    "sgd_groups": case(f"{TORCH}: SGD, groups", grouped(torch.optim.SGD), "SGD", dict(BUFFER), lr=0.1,
                       momentum=0.9, weight_decay=0.1),
    "lamb_groups": case(f"{DEEPSPEED}: formula of FusedLamb, groups", grouped(FormulaLamb), "Lamb", dict(MOMENTS),
                        lr=0.05, weight_decay=0.1),
    "muon": case(f"{DEEPSPEED}: MuonWithAuxAdam", muon, "Muon", {**MOMENTS, **BUFFER}, lr=0.02, weight_decay=0.1),
    "muon_standard": case(f"{DEEPSPEED}: MuonWithAuxAdam", muon, "Muon", {**MOMENTS, **BUFFER}, muon_lr=0.05,
                          adam_lr=0.01, momentum=0.8, ns_method="standard"),
}


def numbers(tensor):
    return [float(f"{value:.9g}") for value in tensor.detach().flatten().tolist()]


def state_of(optimizer, parameter, names):
    state = optimizer.state[parameter]
    return {ours: numbers(state[theirs]) for ours, theirs in names.items() if theirs in state}


def make_step(name, entry, update=7):
    """The last of `update` updates with gradients of all magnitudes."""
    generator = torch.Generator().manual_seed(len(name))
    shapes = [(6, 4), (5,), (3, 7)]
    parameters = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    for block, p in enumerate(parameters):
        p.block = block
    optimizer = entry["make"](parameters)
    result = dict(name=name, program=entry["program"], optimizer=entry["optimizer"], update=update,
                  shapes=shapes, parameters=[{} for _ in shapes])
    for step in range(1, update + 1):
        for i, p in enumerate(parameters):
            size = 10.0**torch.randint(-4, 1, p.shape, generator=generator)
            p.grad = torch.randn(p.shape, generator=generator) * size
            if step == update:
                result["parameters"][i]["before"] = dict(parameter=numbers(p), gradient=numbers(p.grad),
                                                         state=state_of(optimizer, p, entry["names"]))
        optimizer.step()
    for i, p in enumerate(parameters):
        result["parameters"][i]["after"] = dict(parameter=numbers(p), state=state_of(optimizer, p, entry["names"]))
    return result


def first_values():
    """The tiny model's parameters in the model's order; `scale` is frozen, `unused` gets no gradient."""
    generator = torch.Generator().manual_seed(5)
    shapes = {"table": (VOCABULARY, WIDTH)}
    for i in range(LAYERS):
        for suffix, shape in (("w", (WIDTH, WIDTH)), ("scale", (WIDTH,)), ("b", (WIDTH,)), ("unused", (3,))):
            shapes[f"layer.{i}.{suffix}"] = shape
    shapes["head.gain"] = (WIDTH,)
    return {name: 0.5 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def loss_of(values, step):
    places = torch.arange(step * SAMPLES * TOKENS, (step + 1) * SAMPLES * TOKENS)
    tokens = (places * places * 7 + places * 3) % VOCABULARY
    labels = (tokens * 5 + 1) % VOCABULARY
    hidden = values["table"][tokens]
    for i in range(LAYERS):
        inner = hidden @ values[f"layer.{i}.w"] + values[f"layer.{i}.b"]
        hidden = hidden + torch.tanh(inner) * values[f"layer.{i}.scale"]
    logits = (hidden * values["head.gain"]) @ values["table"].T
    return torch.nn.functional.cross_entropy(logits, labels)


def make_run(name, entry, first, clip):
    values = {key: torch.nn.Parameter(value.clone(), requires_grad=not key.endswith("scale"))
              for key, value in first.items()}
    trained = {key: p for key, p in values.items() if p.requires_grad and not key.endswith("unused")}
    for key, p in trained.items():
        p.block = 0 if key == "table" else LAYERS + 1 if key == "head.gain" else int(key.split(".")[1]) + 1
    optimizer = entry["make"](list(trained.values()))
    run = dict(name=name, program=entry["program"], optimizer=entry["optimizer"],
               groups=name.endswith("_groups"), gradient_clipping=clip, losses=[], after={})
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


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n", encoding="utf-8")
    print(path)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tests = pathlib.Path(sys.argv[1])
    write(tests / "unit/optim/goldens/steps.json", [make_step(name, entry)
                                                             for name, entry in CASES.items()
                                                             if not name.endswith("_groups")])
    first = first_values()
    runs = [make_run(name, entry, first, clip) for name, entry in CASES.items() for clip in (0.0, 0.3)]
    write(tests / "numerics/goldens/optimizers.json",
          dict(first={name: numbers(value) for name, value in first.items()}, runs=runs))


if __name__ == "__main__":
    main()
