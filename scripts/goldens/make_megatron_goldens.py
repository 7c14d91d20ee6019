#!/usr/bin/env python3
"""Makes tests/unit/data/goldens/megatron.{bin,idx} with Megatron-LM's own builder.

    python scripts/goldens/make_megatron_goldens.py tests/unit/data/goldens

Needs megatron-core 0.16 (pip install --no-deps), torch and numpy. Two documents, the second of two sequences.
"""

import pathlib
import sys

import numpy
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder


def main():
    out = pathlib.Path(sys.argv[1]) / "megatron"
    builder = IndexedDatasetBuilder(f"{out}.bin", dtype=numpy.uint16)
    builder.add_item(torch.tensor([5, 6, 7]))
    builder.end_document()
    builder.add_item(torch.tensor([1, 2]))
    builder.add_item(torch.tensor([9, 8, 40000, 3]))
    builder.end_document()
    builder.finalize(f"{out}.idx")


if __name__ == "__main__":
    main()
