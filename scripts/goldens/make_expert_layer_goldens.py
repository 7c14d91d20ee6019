#!/usr/bin/env python3
"""Makes tests/unit/moe/goldens/layers.json with DeepSpeed's own MoE layer.

    python scripts/goldens/make_expert_layer_goldens.py tests/unit/moe/goldens/layers.json

Needs deepspeed 0.19.8; the test that reads the golden needs no Python. An expert is
down(relu(up(x))). "uniform": the random numbers that the pass draws, in their order, flat.
"gradients": of sum(output * cos(i)) + balance_loss.
"""

import json
import pathlib
import sys

import torch
from deepspeed.moe.layer import MoE

WIDTH, WIDE, BATCH, LENGTH = 6, 8, 2, 12
TOKENS = BATCH * LENGTH
CASES = [
    {"num_experts": 4, "k": 1, "capacity_factor": 0.8, "min_capacity": 2},
    {"num_experts": 4, "k": 1, "min_capacity": 2, "noisy_gate_policy": "RSample"},
    {"num_experts": 4, "k": 1, "drop_tokens": False, "use_rts": False, "noisy_gate_policy": "Jitter"},
    {"num_experts": 3, "k": 2, "capacity_factor": 0.7, "min_capacity": 2, "use_residual": True},
    {"num_experts": 5, "k": 2, "drop_tokens": False, "top2_2nd_expert_sampling": False},
    {"num_experts": 5, "k": 3, "capacity_factor": 0.8, "min_capacity": 2},
    {"num_experts": 4, "k": 1, "capacity_factor": 4.0, "eval_capacity_factor": 0.5, "min_capacity": 1, "eval": True},
]


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, WIDE)
        self.down = torch.nn.Linear(WIDE, WIDTH)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def drawn(case):
    """The shapes of what a pass draws."""
    gate = (TOKENS, case["num_experts"])
    shapes, training = [], not case.get("eval")
    if case.get("noisy_gate_policy") == "Jitter" and training:
        shapes.append((TOKENS, WIDTH))
    if case["k"] == 1 and case.get("noisy_gate_policy") == "RSample" and training:
        shapes.append(gate)
    if case["k"] == 1 and case.get("use_rts", True):
        shapes.append(gate)
    if case["k"] == 2 and case.get("top2_2nd_expert_sampling", True):
        shapes.append(gate)
    return shapes


def short(values):
    """Lists of fp32 numbers, by the nine digits that tell them apart."""
    return [short(value) for value in values] if isinstance(values, list) else float(f"{values:.9g}")


def ours(name):
    name = name.replace("deepspeed_moe.gate.wg.", "gate.")
    return name.replace("deepspeed_moe.experts.deepspeed_experts.", "expert_")


def layer_golden(index, case):
    options = {key: value for key, value in case.items() if key != "eval"}
    torch.manual_seed(300 + index)
    layer = MoE(WIDTH, Mlp(), **options)
    with torch.no_grad():  # experts begin as copies
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    layer.train(not case.get("eval"))
    x = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    torch.manual_seed(index)
    output, loss, counts = layer(x)
    torch.manual_seed(index)
    uniform = [short(torch.rand(shape).flatten().tolist()) for shape in drawn(case)]
    waves = torch.cos(torch.arange(output.numel(), dtype=torch.float32)).view_as(output)
    (loss + (output * waves).sum()).backward()
    parameters = {ours(name): parameter for name, parameter in layer.named_parameters()}
    return {"options": case, "x": short(x.flatten().tolist()), "uniform": uniform,
            "parameters": {name: short(value.flatten().tolist()) for name, value in parameters.items()},
            "output": short(output.flatten().tolist()), "balance_loss": loss.item(), "counts": counts.tolist(),
            "x_gradient": short(x.grad.flatten().tolist()),
            "gradients": {name: short(value.grad.flatten().tolist()) for name, value in parameters.items()}}


def main():
    path = pathlib.Path(sys.argv[1])
    path.write_text(json.dumps([layer_golden(i, case) for i, case in enumerate(CASES)]) + "\n")


if __name__ == "__main__":
    main()
