#!/usr/bin/env python3
"""Makes tests/numerics/goldens/residual_decoders.json with DeepSpeed's residual MoE layer.

    python scripts/goldens/make_residual_decoder_goldens.py tests/numerics/goldens

Needs torch 2.11, transformers 5 and deepspeed 0.19.8. The models are those that
make_family_goldens.py has saved; in the place of each layer's experts stands a
deepspeed.moe.layer.MoE(use_residual=True) with the same router and experts. Nothing is drawn at
random. The values of the residual MLPs and of their coefficients, which no folder has, follow from
their names (value_of). Each case holds the loss and, of each parameter, norm and probe of its
gradient (as make_transformers_goldens.py has them), and how many routes were dropped. "own": the
model's own routing computes the same, as nothing is dropped.
"""

import json
import pathlib
import sys

import torch
import transformers
from deepspeed.moe.layer import MoE

from make_transformers_goldens import RUNS, SEQ_LEN, STEPS, batch_of, loss_of, make_tokens, stored_parts

SAMPLES = 8
ONE = {"num_experts_per_tok": 1, "norm_topk_prob": False}
CASES = [
    ("mixtral", {}, {"capacity_factor": 0.6, "min_capacity": 1}),
    ("mixtral", {}, {"drop_tokens": False}),
    ("qwen3_moe", {}, {"capacity_factor": 0.8, "min_capacity": 4}),
    ("qwen3_moe", ONE, {"capacity_factor": 0.5, "min_capacity": 2}),
    ("qwen3_moe", ONE, {"drop_tokens": False}),
]


def value_of(place, count):
    """Of the parameter at that place among the sorted names of all residual ones."""
    return (0.2 * torch.sin(1.7 * torch.arange(1, count + 1, dtype=torch.float64) + place)).float()


class Expert(torch.nn.Module):
    def __init__(self, width, wide, names):
        super().__init__()
        self.names = names
        for name in names[:2]:
            self.add_module(name, torch.nn.Linear(width, wide, bias=False))
        self.add_module(names[2], torch.nn.Linear(wide, width, bias=False))

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(torch.nn.functional.silu(gate(x)) * up(x))


class ResidualLayer(torch.nn.Module):
    """In the place of a layer's experts, with their weights."""

    def __init__(self, old, k, names, options):
        super().__init__()
        experts, double, width = old.experts.gate_up_proj.shape
        factor = options.get("capacity_factor", 1.0)
        self.moe = MoE(width, Expert(width, double // 2, names), experts, k=k, use_residual=True, use_rts=False,
                       top2_2nd_expert_sampling=False, eval_capacity_factor=factor, **options)
        with torch.no_grad():
            self.moe.deepspeed_moe.gate.wg.weight.copy_(old.gate.weight)
            for i, expert in enumerate(self.moe.deepspeed_moe.experts.deepspeed_experts):
                parts = [*old.experts.gate_up_proj[i].chunk(2), old.experts.down_proj[i]]
                for name, part in zip(names, parts):
                    getattr(expert, name).weight.copy_(part)

    def forward(self, x):
        return self.moe(x)[0]


def our_name(name, model):
    part = "block_sparse_moe" if model.config.model_type == "mixtral" else "mlp"
    for theirs, ours in ((".deepspeed_moe.gate.wg.", ".gate."), (".deepspeed_moe.experts.deepspeed_experts.", ".experts."),
                         (".mlp.moe.mlp.", ".mlp.moe.residual_mlp."), (".mlp.moe.", f".{part}.")):
        name = name.replace(theirs, ours)
    return name


def named_parameters_of(model):
    named = {}
    for name, parameter in model.named_parameters():
        named[our_name(name, model) if ".moe." in name else stored_parts(name, parameter, model)[0][0]] = parameter
    return named


def fill_residual(named):
    own = sorted(name for name in named if ".residual_mlp." in name or ".coefficient." in name)
    with torch.no_grad():
        for place, name in enumerate(own):
            named[name].copy_(value_of(place, named[name].numel()).view_as(named[name]))


def probe_of(gradient):
    flat = gradient.double().flatten()
    waves = torch.cos(torch.arange(flat.numel(), dtype=torch.float64))
    return {"norm": flat.norm().item(), "probe": torch.dot(flat, waves).item()}


def make(folder, name, changes, options, tokens):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "families" / name, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32,
        **changes)
    names = ("w1", "w3", "w2") if name == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    k = model.config.num_experts_per_tok
    for layer in model.model.layers:
        layer.mlp = ResidualLayer(layer.mlp, k, names, options)
    named = named_parameters_of(model.eval())
    fill_residual(named)
    sent = []
    for layer in model.model.layers:
        gate = layer.mlp.moe.deepspeed_moe.gate
        gate.register_forward_hook(lambda _, __, result: sent.append(int((result[5] > 0).sum())))
    loss = loss_of(model, *batch_of(tokens, 0, SAMPLES))
    loss.backward()
    all_routes = SAMPLES * SEQ_LEN * k * len(model.model.layers)
    return {"model": name, "per_token": k, "normalises": changes.get("norm_topk_prob", True), "options": options,
            "own": not options.get("drop_tokens", True), "batch": SAMPLES, "dropped": all_routes - sum(sent),
            "loss": loss.item(), "gradients": {name: probe_of(each.grad) for name, each in named.items()}}


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    tokens = make_tokens(max(RUNS) * STEPS * SEQ_LEN + 1)
    cases = [json.dumps(make(folder, *case, tokens)) for case in CASES]
    (folder / "residual_decoders.json").write_text("[" + ",\n".join(cases) + "]\n")


if __name__ == "__main__":
    main()
