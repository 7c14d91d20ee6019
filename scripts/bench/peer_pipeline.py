"""One rank of DeepSpeed's PipelineModule over gloo, whose layers wait instead of computing. Started by
scripts/bench/pipeline, which sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

Rank 0 prints the seconds of each step as a JSON list, in the last line.
"""

import argparse
import json
import os
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed.pipe import PipelineModule


class Waiting(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight, seconds):
        context.seconds = seconds
        time.sleep(seconds)
        return x + 0.0 * weight

    @staticmethod
    def backward(context, gradient):
        time.sleep(2 * context.seconds)
        return gradient, torch.zeros(gradient.shape[-1]), None


class SleepLayer(torch.nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return Waiting.apply(x, self.weight, self.seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--micro_batches", type=int, required=True)
    parser.add_argument("--milliseconds", type=float, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo")
    stages = int(os.environ["WORLD_SIZE"])
    model = PipelineModule(layers=[SleepLayer(options.milliseconds / 1e3) for _ in range(options.layers)],
                           num_stages=stages, loss_fn=lambda output, labels: output.mean() + 0.0 * labels.sum(),
                           partition_method="uniform")
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": options.micro_batches,
        "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
        "steps_per_print": 1000000,
    })

    def batches():
        while True:
            yield torch.ones(1, 4, requires_grad=True), torch.zeros(1)

    source = batches()
    seconds = []
    for _ in range(options.steps):
        begin = time.monotonic()
        engine.train_batch(data_iter=source)
        seconds.append(time.monotonic() - begin)
    if engine.global_rank == 0:
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
