"""Checks ZeRO++ from Python on four ranks: what each of its keys changes, and within which bounds.

    dsrun -n 4 check_zero_plus_plus.py      ends with status 1 after a failed check

The bounds are those of tests/ranks/zero_plus_plus_test.cc.
"""

import os

import torch
from models import loss_of, make_batch, make_model

import dsrun

RANK, STEPS = int(os.environ["RANK"]), 4
QUANTIZED_WEIGHTS, QUANTIZED_GRADIENTS = {"zero_quantized_weights": True}, {"zero_quantized_gradients": True}
NEAR = {"zero_hpz_partition_size": 2}


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def train(keys):
    """This rank's losses of one batch, and the bytes that the engine holds for collectives."""
    engine, *_ = dsrun.initialize(model=make_model("llama"), config={
        "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 2e-3}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, **keys}})
    losses = []
    for _ in range(STEPS):
        loss = loss_of(engine(**make_batch("llama", RANK, 0)))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    held = engine.native.memory_bytes["comm_buffers"]
    engine.destroy()
    return losses, held


def main():
    torch.set_num_threads(1)
    train(NEAR)  # the groups' buffers stay: later runs differ by their own only
    plain, held = train({})
    for keys, bound, same_first in ((QUANTIZED_WEIGHTS, 0.02, False), (QUANTIZED_GRADIENTS, 0.05, True),
                                    (QUANTIZED_WEIGHTS | QUANTIZED_GRADIENTS | NEAR, 0.05, False)):
        losses, _ = train(keys)
        check(losses[-1] < losses[0], f"{keys}: {losses} do not fall")
        check(all(abs(a - b) <= bound * b for a, b in zip(losses, plain)), f"{keys}: {losses}, without {plain}")
        check((losses[0] == plain[0]) == same_first, f"{keys}: the first loss is {losses[0]}, without {plain[0]}")
        check(losses[1:] != plain[1:], f"{keys} have no effect")
    losses, with_secondary = train(NEAR)
    check(losses == plain, f"{NEAR}: {losses}, without {plain}")
    parameters = sum(p.numel() * 4 for p in make_model("llama").parameters())
    check(with_secondary - held >= parameters // 2, f"{NEAR}: {with_secondary} bytes, without {held}: no second shards")
    print("all checks passed", flush=True)


if __name__ == "__main__":
    main()
