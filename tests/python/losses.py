"""Trains a model by an engine and prints the losses and norms of its steps as JSON, one per line.

    python losses.py ENGINE MODEL CONFIG.json [STEPS] [options]

ENGINE is dsrun, deepspeed or torch (one process that sees the batches of all ranks, with AdamW).
Options: user_backward (loss.backward()), checkpointing (gradient checkpointing of transformers).
"""

import json
import os
import sys

import torch
from models import loss_of, make_batch, make_model


def train(engine_name, name, config, steps, options):
    model = make_model(name)
    if "checkpointing" in options:
        model.gradient_checkpointing_enable(
            {"use_reentrant": False} if "reentrant" not in options else {"use_reentrant": True})
    if engine_name == "dsrun":
        import dsrun as library
    else:
        import deepspeed as library
        library.init_distributed("gloo")
    engine, *_ = library.initialize(model=model, config=config)
    rank = int(os.environ["RANK"])
    for step in range(steps):
        losses = []
        for micro in range(engine.gradient_accumulation_steps()):
            loss = loss_of(engine(**make_batch(name, rank, step * 10 + micro)))
            if "user_backward" in options:
                loss.backward()
            else:
                engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        if "evaluate" in options:
            with torch.no_grad():
                engine(**make_batch(name, rank, 5000 + step))
        norm = engine.get_global_grad_norm()
        yield {"rank": rank, "loss": sum(losses) / len(losses), "norm": float(norm)}


def train_alone(name, config, steps, ranks):
    model = make_model(name)
    params = config["optimizer"]["params"]
    optimizer = torch.optim.AdamW(model.parameters(), **params)
    micro_batches = config.get("gradient_accumulation_steps", 1)
    for step in range(steps):
        losses = [0.0] * ranks
        calls = getattr(model, "calls", 0)
        for micro in range(micro_batches):
            for rank in range(ranks):
                if hasattr(model, "calls"):
                    model.calls = calls + micro
                loss = loss_of(model(**make_batch(name, rank, step * 10 + micro)))
                (loss / (ranks * micro_batches)).backward()
                losses[rank] += loss.item() / micro_batches
        for parameter in model.parameters():  # as in DeepSpeed: no gradient counts as zeros
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        clip = config.get("gradient_clipping", 1.0) or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        for rank in range(ranks):
            yield {"rank": rank, "loss": losses[rank], "norm": norm.item()}


def main():
    engine, name, path = sys.argv[1:4]
    steps = int(sys.argv[4]) if len(sys.argv) > 4 else 10
    options = sys.argv[5:]
    with open(path) as file:
        config = json.load(file)
    if engine == "torch":
        lines = train_alone(name, config, steps, ranks=2)
    else:
        lines = train(engine, name, config, steps, options)
    for line in lines:
        print("STEP", json.dumps(line), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
