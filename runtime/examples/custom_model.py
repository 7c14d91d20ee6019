"""custom_model.cc as a module of PyTorch, with the same losses:

    dsrun --num_gpus 4 runtime/examples/custom_model.py ds_config.json
"""

import sys

import torch
from torch import nn

import dsrun


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 64), nn.Linear(64, 64)])
        self.classifier = nn.Linear(64, 4)

    def forward(self, points, labels):
        x = points.to(self.classifier.weight.dtype)  # weights have the config's dtype
        for layer in self.layers:
            x = nn.functional.gelu(layer(x))
        return nn.functional.cross_entropy(self.classifier(x), labels)


def make_batch(samples):
    """Points of the plane; the label is the quadrant."""
    points = torch.randn(samples, 2)
    return points, points[:, 0].gt(0).long() + 2 * points[:, 1].gt(0).long()


def main():
    torch.manual_seed(1)  # initial values are rank 0's, and the same in every run
    engine, *_ = dsrun.initialize(model=Model(), config=sys.argv[1])
    rank = dsrun.comm.get_rank()
    torch.manual_seed(rank)
    while engine.global_steps < 100:
        loss = engine(*make_batch(engine.train_micro_batch_size_per_gpu()))
        engine.backward(loss)
        engine.step()
        result = engine.step_result
        if result.boundary and result.step % 20 == 0 and rank == 0:
            print(f"step {result.step}  loss {result.loss:.4f}")


if __name__ == "__main__":
    main()
