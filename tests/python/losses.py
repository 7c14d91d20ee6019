"""The reference of the tests: PyTorch alone, in one process that sees the batches of all ranks."""

import torch
from models import loss_of, make_batch, make_model


def train_alone(name, config, steps, ranks):
    """Yields {"rank", "loss", "norm"} of each step of AdamW, in the order of steps and ranks."""
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
