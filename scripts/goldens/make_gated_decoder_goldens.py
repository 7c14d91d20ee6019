#!/usr/bin/env python3
"""Makes tests/numerics/goldens/gated_decoders.json with transformers and DeepSpeed's own gates.

    python scripts/goldens/make_gated_decoder_goldens.py tests/numerics/goldens

Needs torch 2.11, transformers 5 and deepspeed 0.19.8. The models are those that
make_family_goldens.py has saved; the router of each layer with experts is replaced by a gate of
deepspeed.moe.sharded_moe, which sees all tokens of the batch at once. Nothing is drawn at random.
Each case holds the loss and, of each parameter, norm and probe of its gradient (as
make_transformers_goldens.py has them), and how many routes were dropped.
"""

import json
import pathlib
import sys
import types

import torch
import transformers
from deepspeed.moe import sharded_moe

from make_transformers_goldens import RUNS, SEQ_LEN, STEPS, batch_of, gradients_of, loss_of, make_tokens

SAMPLES = 8
CASES = [
    ("mixtral", {"capacity_factor": 0.6, "min_capacity": 1}),
    ("mixtral", {"capacity_factor": 0.1, "min_capacity": 40}),
    ("mixtral", {"drop_tokens": False}),
    ("mixtral_balanced", {"capacity_factor": 0.7, "min_capacity": 4}),
    ("qwen3_moe", {"capacity_factor": 0.8, "min_capacity": 4}),
    ("qwen2_moe_some", {"capacity_factor": 0.5, "min_capacity": 2}),
    ("qwen2_moe_some", {"drop_tokens": False}),
]


def gate_of(options, k, logits):
    factor, least = options.get("capacity_factor", 1.0), options.get("min_capacity", 4)
    drops = options.get("drop_tokens", True)
    if k == 1:
        return sharded_moe.top1gating(logits, factor, least, drop_tokens=drops, use_rts=False)
    if k == 2:
        return sharded_moe.top2gating(logits, factor, least, drops, top2_2nd_expert_sampling=False)
    return sharded_moe.topkgating(logits, k, factor, least, drops)


def replace_routers(model, options, dropped):
    for module in model.modules():
        router = getattr(module, "gate", None)
        if not hasattr(module, "experts") or router is None:
            continue

        def forward(self, hidden_states, k=model.config.num_experts_per_tok):
            hidden_states = hidden_states.reshape(-1, hidden_states.shape[-1])
            logits = torch.nn.functional.linear(hidden_states, self.weight)
            _, combine, dispatch, counts = gate_of(options, k, logits)
            sent = dispatch.any(2)
            experts = torch.arange(sent.shape[1]).expand_as(sent)
            dropped.append(int(counts.sum()) - int(sent.sum()))
            return logits, combine.sum(2), torch.where(sent, experts, sent.shape[1])

        router.forward = types.MethodType(forward, router)


def make(folder, name, options, tokens):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "families" / name, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)
    dropped = []
    replace_routers(model.eval(), options, dropped)
    loss = loss_of(model, *batch_of(tokens, 0, SAMPLES))
    loss.backward()
    return {"model": name, "options": options, "batch": SAMPLES, "dropped": sum(dropped), "loss": loss.item(),
            "gradients": gradients_of(model)}


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    tokens = make_tokens(max(RUNS) * STEPS * SEQ_LEN + 1)
    cases = [make(folder, name, options, tokens) for name, options in CASES]
    (folder / "gated_decoders.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
