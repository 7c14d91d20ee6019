#!/usr/bin/env python3
"""Writes what DeepSpeed's zero.TiledLinear makes of small shapes.

    /tmp/goldens/bin/python scripts/goldens/make_tiled_linear_goldens.py tests/unit/models/goldens

Of each layer: its tiles by name, an input and what the layer makes of it, and the gradients of the output's sum of
squares.
"""

import json
import pathlib
import sys

import torch
from deepspeed.runtime.zero.tiling import TiledLinear


def numbers(tensor):
    return [float(f"{value:.9g}") for value in tensor.flatten().tolist()]


def describe(in_features, out_features, in_splits, out_splits, bias):
    torch.manual_seed(7)
    layer = TiledLinear(in_features, out_features, bias=bias, in_splits=in_splits, out_splits=out_splits)
    x = torch.randn(3, in_features)
    y = layer(x)
    y.square().sum().backward()
    return {
        "in": in_features, "out": out_features, "in_splits": in_splits, "out_splits": out_splits, "bias": bias,
        "input": numbers(x), "output": numbers(y.detach()),
        "tiles": {name: {"shape": list(value.shape), "values": numbers(value.detach()), "gradient": numbers(value.grad)}
                  for name, value in layer.named_parameters()},
    }


layers = [describe(5, 4, 1, 1, True), describe(7, 10, 2, 3, True), describe(8, 5, 3, 2, False)]
folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
(folder / "tiled_linear.json").write_text(json.dumps(layers, separators=(",", ":")) + "\n")
