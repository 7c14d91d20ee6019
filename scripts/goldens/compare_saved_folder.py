#!/usr/bin/env python3
"""Checks that a folder written by dsrank loads in transformers and gives the same loss.

    python scripts/goldens/compare_saved_folder.py build/bin/dsrank

For every preset and every family's golden, in fp32 and bf16: trains a few steps, saves the folder,
reads it back for one more step with dsrank, and computes the loss of that step's samples with
transformers. Exits 1 unless all tensors are found, none is left over and the losses agree. Needs
torch and transformers 5.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

BATCH, SEQ_LEN = 8, 32
DATA = pathlib.Path(__file__).resolve()  # any text will do
ROOT = DATA.parent.parent.parent


def models():
    """(name, what --model takes)"""
    for preset in sorted((ROOT / "configs/models").glob("*-tiny.json")) + [ROOT / "configs/models/gpt2-demo.json"]:
        yield preset.stem, preset.stem
    for folder in sorted((ROOT / "tests/numerics/goldens/families").iterdir()):
        if folder.is_dir():
            yield folder.name, str(folder)


def run_dsrank(dsrank, folder, job):
    """Runs the job and returns the loss of its first step."""
    path = folder / "job.json"
    path.write_text(json.dumps(job))
    done = subprocess.run([dsrank, "train", path], cwd=folder, check=True, capture_output=True,
                          text=True)
    steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    return steps[0]["loss"]


def loss_of_transformers(folder):
    config = (folder / "config.json").read_text()
    # Grouped products want rows of a multiple of 16 bytes.
    experts = {"experts_implementation": "eager"} if "num_experts_per_tok" in config else {}
    eager = "gemma2" in config or "bloom" in config  # soft caps, and what transformers has no other for
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype="auto",
        attn_implementation="eager" if eager else "sdpa", **experts)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    tokens = numpy.frombuffer(DATA.read_bytes(), dtype=numpy.uint8).astype(numpy.int64)
    rows = torch.from_numpy(
        numpy.stack([tokens[i * SEQ_LEN : (i + 1) * SEQ_LEN + 1] for i in range(BATCH)]))
    labels = rows[:, 1:].contiguous()
    with torch.no_grad():
        return model(input_ids=rows[:, :-1], labels=labels, shift_labels=labels).loss.item()


def main():
    dsrank = pathlib.Path(sys.argv[1]).resolve()
    worst = 0.0
    for name_of_model, source in models():
        for dtype, tolerance in (("fp32", 2e-5), ("bf16", 2e-2)):
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                config = {
                    "train_micro_batch_size_per_gpu": BATCH, "bf16": {"enabled": dtype == "bf16"},
                    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
                job = {
                    "model": source, "data": [str(DATA)], "seq_len": SEQ_LEN, "steps": 5,
                    "shuffle": False, "device": "cpu", "ds_config": json.dumps(config)}
                run_dsrank(dsrank, folder, job | {"save_hf_dir": str(folder / "saved")})
                ours = run_dsrank(dsrank, folder, job | {"model": str(folder / "saved"), "steps": 1})
                theirs = loss_of_transformers(folder / "saved")
                print(f"{name_of_model:18} {dtype}: dsrank {ours:.7f}  transformers {theirs:.7f}")
                worst = max(worst, abs(ours - theirs) / tolerance)
    sys.exit(worst > 1.0)


if __name__ == "__main__":
    main()
