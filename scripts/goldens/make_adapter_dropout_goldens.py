#!/usr/bin/env python3
"""Writes what PEFT's linear layers with LoRA and DoRA compute while they drop inputs.

    /tmp/goldens/bin/python scripts/goldens/make_adapter_dropout_goldens.py tests/unit/models/goldens

PEFT's dropout is told what to multiply by: the factors that dsrun draws, computed here a second time (Philox4x32-10).
Of each layer: its tensors, an input, the factors, the output, and the gradients of the output's sum of squares.
"""

import json
import pathlib
import sys

import torch
from peft import LoraConfig, get_peft_model

WORD, LONG = 2**32 - 1, 2**64 - 1
KEY, BLOCK, SITE, FIRST_SAMPLE, FIRST_POSITION = 77, 2, 8, 3, 5
SAMPLES, TOKENS, INPUTS, OUTPUTS, RANK, ALPHA = 2, 3, 6, 4, 2, 3
PROBABILITY = 0.25


def split_mix(value):
    value = (value + 0x9E3779B97F4A7C15) & LONG
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & LONG
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & LONG
    return value ^ value >> 31


def extend_key(key, word):
    return split_mix(split_mix(key) ^ word)


def fnv1a(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & LONG
    return value


def philox(counter, key):
    low, high = key & WORD, key >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [b >> 32 ^ counter[1] ^ low, b & WORD, a >> 32 ^ counter[3] ^ high, a & WORD]
        low, high = (low + 0x9E3779B9) & WORD, (high + 0xBB67AE85) & WORD
    return counter


def draw_factors(name):
    key = extend_key(extend_key(extend_key(KEY, fnv1a(name)), BLOCK), SITE)
    factors = torch.zeros(SAMPLES, TOKENS, INPUTS)
    for sample in range(SAMPLES):
        for token in range(TOKENS):
            for i in range(INPUTS):
                word = philox([i // 4, 0, FIRST_POSITION + token, FIRST_SAMPLE + sample], key)[i % 4]
                factors[sample, token, i] = 0.0 if word < PROBABILITY * 2**32 else 1.0 / (1.0 - PROBABILITY)
    return factors


class Multiply(torch.nn.Module):
    def __init__(self, factors):
        super().__init__()
        self.factors = factors

    def forward(self, x):
        return x * self.factors


def numbers(tensor):
    return {"shape": list(tensor.shape), "values": [float(f"{value:.9g}") for value in tensor.flatten().tolist()]}


def describe(magnitudes):
    torch.manual_seed(7)
    model = torch.nn.ModuleDict({"part": torch.nn.Linear(INPUTS, OUTPUTS)})
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=PROBABILITY, target_modules=["part"],
                        use_dora=magnitudes, init_lora_weights=False)
    layer = get_peft_model(model, config).base_model.model["part"]
    with torch.no_grad():
        if magnitudes:
            layer.lora_magnitude_vector["default"].weight.mul_(1.5)
    factors = draw_factors("part")
    layer.lora_dropout["default"] = Multiply(factors)
    x = torch.randn(SAMPLES, TOKENS, INPUTS, requires_grad=True)
    y = layer(x)
    y.square().sum().backward()
    tensors = {"weight": layer.base_layer.weight, "bias": layer.base_layer.bias,
               "lora_A.weight": layer.lora_A["default"].weight, "lora_B.weight": layer.lora_B["default"].weight}
    if magnitudes:
        tensors["lora_magnitude_vector"] = layer.lora_magnitude_vector["default"].weight
    return {"magnitudes": magnitudes, "scale": layer.scaling["default"], "input": numbers(x.detach()),
            "factors": numbers(factors), "output": numbers(y.detach()), "input_gradient": numbers(x.grad),
            "tensors": {name: numbers(value.detach()) for name, value in tensors.items()},
            "gradients": {name: numbers(value.grad) for name, value in tensors.items() if value.grad is not None}}


path = pathlib.Path(sys.argv[1]) / "adapter_dropout.json"
path.write_text(json.dumps([describe(False), describe(True)], separators=(",", ":")) + "\n")
