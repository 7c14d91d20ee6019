"""DeepSpeed's getting-started loop: --deepspeed --deepspeed_config on the command line, nothing in the code."""

import argparse
import json

import deepspeed
import torch
from torch import nn


class Regression(torch.utils.data.Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(4)
        self.inputs = torch.randn(count, 16, generator=generator)
        self.targets = self.inputs.sum(dim=1, keepdim=True).tanh()

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


def get_args():
    parser = argparse.ArgumentParser(description="My training script.")
    parser.add_argument("--local_rank", type=int, default=-1, help="local rank passed from distributed launcher")
    parser = deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def main():
    cmd_args = get_args()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    model_engine, optimizer, loader, scheduler = deepspeed.initialize(
        args=cmd_args, model=net, model_parameters=net.parameters(), training_data=Regression(48))
    for epoch in range(2):
        for step, (inputs, targets) in enumerate(loader):
            loss = nn.functional.mse_loss(model_engine(inputs.to(model_engine.device)), targets)
            model_engine.backward(loss)
            model_engine.step()
            if model_engine.global_rank == 0:
                print("LOG", json.dumps({"loss": loss.item(), "lr": model_engine.get_lr()[0],
                                         "steps": model_engine.global_steps}), flush=True)


if __name__ == "__main__":
    main()
