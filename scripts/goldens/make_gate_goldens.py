#!/usr/bin/env python3
"""Makes tests/unit/moe/goldens/gates.json with DeepSpeed's own gates.

    python scripts/goldens/make_gate_goldens.py tests/unit/moe/goldens/gates.json

Needs deepspeed 0.19.8; the test that reads the golden needs no Python.

"gates": [{"gate": "top1|top2|topk", "options": {...}, "logits": [[...]], "uniform": what its random
numbers are made of, if it draws any, and what it gives: "experts", "places", "weights" [k][S],
"counts" [E], "capacity", "balance_loss", "gradient": of sum(weights * cos(i)) + balance_loss}]
"jitter": {"x", "uniform", "epsilon", "result"}, "logit_loss": {"logits", "loss"}: by PyTorch.
"""

import json
import pathlib
import sys

import torch
from deepspeed.moe import sharded_moe

# Gate, tokens, experts, options.
CASES = [
    ("top1", 24, 4, {"factor": 1.0, "least": 2, "drops": True, "rts": False}),
    ("top1", 24, 4, {"factor": 1.0, "least": 2, "drops": True, "rts": True}),
    ("top1", 24, 4, {"factor": 0.7, "least": 1, "drops": True, "rts": True, "noise": True}),
    ("top1", 40, 6, {"factor": 1.25, "least": 8, "drops": False, "rts": False}),
    ("top1", 24, 4, {"factor": 1.0, "least": 4, "drops": True, "rts": False, "used": 17}),
    ("top1", 9, 5, {"factor": 1.0, "least": 8, "drops": True, "rts": False}),
    ("top2", 24, 4, {"factor": 1.0, "least": 2, "drops": True}),
    ("top2", 24, 4, {"factor": 0.6, "least": 2, "drops": True, "noise": True}),
    ("top2", 40, 6, {"factor": 1.0, "least": 4, "drops": False}),
    ("top2", 40, 6, {"factor": 1.0, "least": 4, "drops": False, "noise": True}),
    ("topk", 24, 4, {"k": 3, "factor": 0.5, "least": 2, "drops": True, "policy": "probs"}),
    ("topk", 24, 8, {"k": 2, "factor": 0.9, "least": 2, "drops": True, "policy": "position"}),
    ("topk", 40, 6, {"k": 4, "factor": 1.0, "least": 4, "drops": False, "policy": "probs"}),
    ("topk", 24, 4, {"k": 1, "factor": 0.8, "least": 1, "drops": True, "policy": "probs"}),
    ("topk", 11, 7, {"k": 3, "factor": 0.3, "least": 3, "drops": True, "policy": "probs"}),
]


def short(values):
    """Lists of fp32 numbers, by the nine digits that tell them apart."""
    return [short(value) for value in values] if isinstance(values, list) else float(f"{values:.9g}")


def run(gate, logits, options, seed):
    torch.manual_seed(seed)
    rest = (options["factor"], options["least"])
    if gate == "top1":
        tokens = logits.shape[0]
        used = (torch.arange(tokens) < options["used"]).long() if "used" in options else None
        return sharded_moe.top1gating(
            logits, *rest, used_token=used, noisy_gate_policy="RSample" if options.get("noise") else None,
            drop_tokens=options["drops"], use_rts=options["rts"], sparse_routes=True)
    if gate == "top2":
        # It adds its noise in place.
        return sharded_moe.top2gating(
            logits + 0, *rest, drop_tokens=options["drops"],
            top2_2nd_expert_sampling=options.get("noise", False), sparse_routes=True)
    return sharded_moe.topkgating(
        logits, options["k"], *rest, drop_tokens=options["drops"], drop_policy=options["policy"],
        sparse_routes=True)


def gate_golden(index, gate, tokens, experts, options):
    torch.manual_seed(100 + index)
    # Some experts are more popular, so that some are full.
    logits = torch.randn(tokens, experts) + torch.linspace(1.5, 0.0, experts)
    logits.requires_grad_()
    loss, capacity, _, chosen, places, weights, counts = run(gate, logits, options, seed=index)
    waves = torch.cos(torch.arange(weights.numel(), dtype=torch.float32)).view_as(weights)
    (loss + (weights * waves).sum()).backward()
    golden = {"gate": gate, "options": options, "logits": short(logits.detach().tolist()),
              "experts": chosen.tolist(), "places": places.tolist(), "weights": short(weights.tolist()),
              "counts": counts.tolist(), "capacity": int(capacity), "balance_loss": loss.item(),
              "gradient": short(logits.grad.tolist())}
    draws = int(options.get("noise", False)) + int(options.get("rts", False))
    torch.manual_seed(index)  # the numbers again that it has drawn, in its order
    golden["uniform"] = [short(torch.rand(tokens, experts).tolist()) for _ in range(draws)]
    return golden


def main():
    golden = {"gates": [gate_golden(i, *case) for i, case in enumerate(CASES)]}
    torch.manual_seed(7)
    x = torch.randn(3, 5)
    torch.manual_seed(8)
    jittered = sharded_moe.multiplicative_jitter(x, x.device, epsilon=0.03)
    torch.manual_seed(8)
    golden["jitter"] = {"x": x.tolist(), "uniform": torch.rand(3, 5).tolist(), "epsilon": 0.03,
                        "result": jittered.tolist()}
    logits = 3 * torch.randn(6, 4)
    golden["logit_loss"] = {"logits": logits.tolist(),
                            "loss": torch.logsumexp(logits, -1).square().mean().item()}
    path = pathlib.Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
