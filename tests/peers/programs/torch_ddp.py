"""PyTorch DDP as its tutorial writes it; nothing in it knows who starts it."""

import gc
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train():
    torch.manual_seed(int(os.environ["RANK"]))  # DDP gives every rank the weights of rank 0
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(32, 8)
    labels = inputs.sum(dim=1, keepdim=True)
    for step in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), labels)
        loss.backward()
        optimizer.step()
    weights = [torch.empty_like(model.module.weight) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, model.module.weight.data)
    assert all(torch.equal(weights[0], other) for other in weights)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} finished, local rank {os.environ['LOCAL_RANK']}",
          flush=True)


def main():
    dist.init_process_group("gloo")
    train()
    # DDP holds the process group and is part of a cycle. Where gloo's threads outlive the interpreter
    # PyTorch aborts ("terminate called without an active exception").
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
