"""DeepSpeed as its getting-started page writes it, on CPU; nothing in it knows who starts it."""

import argparse
import gc

import deepspeed
import torch


def train():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()
    deepspeed.init_distributed("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    engine, _, _, _ = deepspeed.initialize(args=args, model=model, optimizer=optimizer,
                                           model_parameters=model.parameters())
    torch.manual_seed(engine.global_rank)
    inputs = torch.randn(16, 8)
    labels = inputs.sum(dim=1, keepdim=True)
    losses = []
    for step in range(20):
        loss = torch.nn.functional.mse_loss(engine(inputs), labels)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    print(f"rank {engine.global_rank} of {engine.world_size} finished, local rank {args.local_rank}", flush=True)


def main():
    train()
    # The engine holds the process group and is part of a cycle: see torch_ddp.py.
    gc.collect()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
