#!/usr/bin/env python3
"""Makes tests/unit/optim/goldens/blockwise.json: values in 8 bits, by blocks of 256, as bitsandbytes has them.

    python scripts/goldens/make_blockwise_goldens.py tests/unit/optim/goldens

Needs torch 2.11 and bitsandbytes 0.50.2; the test that reads the goldens (tests/unit/optim/blockwise_state_test.cc)
needs no Python. "maps": the 256 numbers that a byte stands for, "signed" (of first moments) and "unsigned" (of second
ones), which its 8-bit optimizers use. "cases": values of all magnitudes, the bytes and the scales that stand for them,
what these give back.
"""

import json
import pathlib
import sys

import bitsandbytes.functional as functional
import torch

BLOCK = 256


def numbers(tensor):
    return [float(f"{value:.9g}") for value in tensor.flatten().tolist()]


def make_case(name, values, code):
    quantized, state = functional.quantize_blockwise(values, code=code.clone(), blocksize=BLOCK)
    back = functional.dequantize_blockwise(quantized, state)
    return dict(name=name, values=numbers(values), bytes=quantized.tolist(), scales=numbers(state.absmax),
                back=numbers(back))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    generator = torch.Generator().manual_seed(3)
    signed, unsigned = (functional.create_dynamic_map(signed=each) for each in (True, False))
    values = torch.randn(2 * BLOCK + 40, generator=generator)
    values *= 10.0**torch.randint(-6, 1, values.shape, generator=generator)
    cases = [make_case("signed", values, signed), make_case("unsigned", values.square(), unsigned)]
    path = pathlib.Path(sys.argv[1]) / "blockwise.json"
    path.write_text(json.dumps(dict(maps=dict(signed=numbers(signed), unsigned=numbers(unsigned)), cases=cases),
                               separators=(",", ":")) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
