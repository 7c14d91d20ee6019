#!/usr/bin/env python3
"""Makes tests/unit/data/goldens/token_batches.json with DeepSpeed's own batch_by_seqlens and scale_lr.

    python scripts/goldens/make_dynamic_batching_goldens.py tests/unit/data/goldens

Needs deepspeed 0.19.8. Each case has lengths, the order in which samples are taken, what the ds_config says, and of
DeepSpeed the samples of each micro-batch, the samples of each step and what a rate of 0.01 becomes in it. Cases in
which DeepSpeed finds too few micro-batches for a step have none.
"""

import json
import pathlib
import random
import sys

from deepspeed.runtime.data_pipeline.data_sampling.variable_batch_size_and_lr import batch_by_seqlens, scale_lr


def make_case(draw):
    samples = draw.randrange(1, 60)
    lengths = [draw.randrange(1, draw.choice([4, 33])) for _ in range(samples)]
    case = {"lengths": lengths, "max_tokens": draw.randrange(8, 64), "per_step": draw.randrange(1, 5),
            "min_batch_size": draw.choice([1, 1, 1, 2, 3]), "max_batch_size": draw.choice([None, None, 3, 8])}
    by_length = draw.random() < 0.4
    order = sorted(range(samples), key=lambda i: (lengths[i], i)) if by_length else draw.sample(range(samples), samples)
    try:
        batches, sizes, _ = batch_by_seqlens(
            lengths, case["max_tokens"], None if by_length else order, case["min_batch_size"], case["max_batch_size"],
            "seqlen" if by_length else "dataloader", case["per_step"])
    except AssertionError:
        return {**case, "order": order}
    rates = {name: [scale_lr(case["per_step"], size, 0.01, name) for size in sizes] for name in ("linear", "sqrt", "none")}
    return {**case, "order": order, "batches": [[int(i) for i in ids] for _, ids in batches], "sizes": sizes,
            "rates": rates}


def main():
    draw = random.Random(11)
    cases = [make_case(draw) for _ in range(60)]
    lines = ",\n".join(json.dumps(case) for case in cases)
    (pathlib.Path(sys.argv[1]) / "token_batches.json").write_text(f"[{lines}]\n")


if __name__ == "__main__":
    main()
