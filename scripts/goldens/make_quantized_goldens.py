#!/usr/bin/env python3
"""Makes tests/unit/models/goldens/quantized.json with bitsandbytes.

    python scripts/goldens/make_quantized_goldens.py tests/unit/models/goldens

Needs torch 2.11 and bitsandbytes 0.50. Weights follow from a formula, so that they need not be stored. Of
every shape and format: the codes and what stands beside them, in hexadecimal digits or as numbers, and of the
weight that comes back its norm, its product with a wave and a few elements.
"""

import json
import pathlib
import sys

import bitsandbytes
import bitsandbytes.functional as functional
import torch

SHAPES = [(3, 45), (24, 64), (130, 128)]


def make_weight(rows, columns):
    i = torch.arange(rows * columns, dtype=torch.int64)
    whole = ((i * 7919) % 2003 - 1001) * (1 + i % 13)  # exact in fp32
    return (whole.float() / 131072.0).view(rows, columns)


def measure(tensor):
    flat = tensor.double().flatten()
    waves = torch.cos(torch.arange(flat.numel(), dtype=torch.float64))
    return {"norm": flat.norm().item(), "probe": torch.dot(flat, waves).item(), "last": flat[-4:].tolist()}


def digits(tensor):
    return bytes(tensor.flatten().view(torch.uint8).tolist()).hex()


def nf4(weight, double):
    codes, state = functional.quantize_4bit(
        weight, blocksize=64, quant_type="nf4", compress_statistics=double)
    golden = {"codes": digits(codes), "restored": measure(functional.dequantize_4bit(codes, state))}
    if not double:
        return golden | {"scales": state.absmax.tolist()}
    return golden | {"scale_codes": digits(state.absmax),
                     "scales": state.state2.absmax.tolist() + [state.offset.item()]}


def int8(weight):
    codes, scales, _ = functional.int8_vectorwise_quant(weight.clone())
    return {"codes": digits(codes), "scales": scales.tolist(),
            "restored": measure(functional.int8_vectorwise_dequant(codes, scales))}


def main():
    goldens = []
    for rows, columns in SHAPES:
        weight = make_weight(rows, columns)
        made = {"nf4": nf4(weight, False), "int8": int8(weight)} if rows * columns < 2000 else {}
        for kind, golden in (made | {"nf4-double": nf4(weight, True)}).items():
            goldens.append({"rows": rows, "columns": columns, "format": kind} | golden)
    out = {"torch": torch.__version__, "bitsandbytes": bitsandbytes.__version__, "cases": goldens}
    (pathlib.Path(sys.argv[1]) / "quantized.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
