"""The guides' pipeline of an AlexNet, made small, on random images: a script for DeepSpeed.

    alexnet_pipeline.py ENGINE STAGES      ENGINE is dsrun or deepspeed
"""

import json
import sys

import torch
from torch import nn

torch.set_num_threads(1)
ENGINE, STAGES = sys.argv[1:]

if ENGINE == "dsrun":
    import dsrun.compat
    dsrun.compat.install()

import deepspeed  # noqa: E402
from deepspeed.pipe import PipelineModule  # noqa: E402


class AlexNet(nn.Module):
    """The network of torchvision, for images of 8 x 8 pixels."""

    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, kernel_size=3, padding=1), nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2), nn.Conv2d(8, 12, kernel_size=3, padding=1),
            nn.ReLU(inplace=True), nn.Conv2d(12, 8, kernel_size=3, padding=1),
            nn.ReLU(inplace=True), nn.MaxPool2d(kernel_size=2))
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Linear(32, 24), nn.ReLU(inplace=True), nn.Dropout(),
            nn.Linear(24, 24), nn.ReLU(inplace=True), nn.Linear(24, num_classes))


def join_layers(network):
    return [*network.features, network.avgpool, lambda x: torch.flatten(x, 1),
            *network.classifier]


class Images(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.images = torch.randn(40, 3, 8, 8, generator=generator)
        self.labels = torch.randint(0, 10, (40,), generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(42)
    network = PipelineModule(layers=join_layers(AlexNet(num_classes=10)), num_stages=int(STAGES),
                             loss_fn=nn.CrossEntropyLoss(), partition_method="parameters")
    engine, _, _, _ = deepspeed.initialize(
        model=network, training_data=Images(),
        model_parameters=[p for p in network.parameters() if p.requires_grad],
        config={"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2,
                "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.9, 0.999]}}})
    for _ in range(6):
        loss = engine.train_batch()
        if engine.global_rank == 0:
            print("LOG", json.dumps({"loss": loss.item()}), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
