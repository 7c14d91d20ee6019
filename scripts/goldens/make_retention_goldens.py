"""Writes which checkpoints transformers' Trainer keeps under save_total_limit.

    python scripts/goldens/make_retention_goldens.py tests/unit/checkpoint/goldens

Needs transformers 5.24.0.
"""

import argparse
import itertools
import json
import pathlib
import tempfile

import transformers
from transformers.trainer_utils import rotate_checkpoints


def kept(steps, limit, best):
    with tempfile.TemporaryDirectory() as folder:
        for step in steps:
            pathlib.Path(folder, f"checkpoint-{step}").mkdir()
        rotate_checkpoints(folder, limit, f"{folder}/checkpoint-{best}" if best is not None else None)
        return sorted(int(path.name.split("-")[1]) for path in pathlib.Path(folder).iterdir())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    folder.mkdir(exist_ok=True)
    cases = []
    for count, limit in itertools.product((1, 2, 3, 5), (0, 1, 2, 3, 7)):
        steps = [9 * (index + 1) for index in range(count)]
        for best in [None, *steps]:
            cases.append({"steps": steps, "limit": limit, "best": best, "kept": kept(steps, limit, best)})
    golden = {"transformers": transformers.__version__, "cases": cases}
    (folder / "retention.json").write_text(json.dumps(golden) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
