"""Two towers with a contrastive loss over the features of all ranks, as in open_clip's training loop."""

import argparse
import json
import math

import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.GELU(), nn.Flatten(), nn.Linear(128, 16))
        self.token_embedding = nn.Embedding(32, 16)
        self.transformer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.text_projection = nn.Parameter(torch.randn(16, 16) * 0.25)
        self.logit_scale = nn.Parameter(torch.ones(1) * math.log(1 / 0.07))

    def encode_text(self, text):
        return self.transformer(self.token_embedding(text)).mean(dim=1) @ self.text_projection

    def forward(self, images, text):
        image_features = F.normalize(self.visual(images), dim=-1)
        text_features = F.normalize(self.encode_text(text), dim=-1)
        return image_features, text_features, self.logit_scale.exp()


def gather_with_local_gradients(features):
    gathered = [torch.zeros_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, features.detach().contiguous())
    gathered[dist.get_rank()] = features
    return torch.cat(gathered)


def clip_loss(image_features, text_features, logit_scale):
    all_images, all_texts = map(gather_with_local_gradients, (image_features, text_features))
    first = dist.get_rank() * len(image_features)
    labels = torch.arange(first, first + len(image_features))
    return (F.cross_entropy(logit_scale * image_features @ all_texts.T, labels)
            + F.cross_entropy(logit_scale * text_features @ all_images.T, labels)) / 2


def exclude(name, parameter):
    return parameter.ndim < 2 or "bias" in name or "logit_scale" in name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    model = Clip()
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for n, p in named if exclude(n, p)], "weight_decay": 0.0},
         {"params": [p for n, p in named if not exclude(n, p)], "weight_decay": 0.2}],
        lr=5e-3, betas=(0.9, 0.98), eps=1e-6)
    model, optimizer, _, _ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)
    generator = torch.Generator().manual_seed(3 + dist.get_rank())
    for step in range(6):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1.0, (step + 1) / 3)
        images = torch.randn(4, 3, 16, 16, generator=generator)
        text = torch.randint(32, (4, 6), generator=generator)
        loss = clip_loss(*model(images, text))
        model.backward(loss)
        model.step()
        with deepspeed.zero.GatheredParameters([model.module.logit_scale]):
            scale = model.module.logit_scale.exp().item()
        if dist.get_rank() == 0:
            print("LOG", json.dumps({"step": step, "loss": loss.item(), "scale": scale}), flush=True)


if __name__ == "__main__":
    main()
