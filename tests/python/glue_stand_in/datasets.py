"""Stands in for the package datasets in Accelerate's scripts: GLUE's MRPC with random sentences.

A pair is labelled 1 if its sentences are equal. Only what the scripts call is here.
"""

import torch

WORDS = ("the quick brown fox jumps over lazy dog while seven small birds sing in an old tree").split()
SIZES = {"train": 64, "validation": 24}


class IterableDataset:
    """Accelerate asks whether a loader's rows are one, where the package datasets is installed."""


class Rows(list):
    """A split: rows as dictionaries."""


def _sentence(generator):
    chosen = torch.randint(len(WORDS), (6,), generator=generator)
    return " ".join(WORDS[index] for index in chosen)


def _make_rows(split, count):
    generator = torch.Generator().manual_seed(len(split))
    rows = Rows()
    for index in range(count):
        first, other = _sentence(generator), _sentence(generator)
        label = int(index % 4 != 0)
        rows.append({"idx": index, "sentence1": first, "sentence2": first if label else other,
                     "label": label})
    return rows


class Splits(dict):
    def map(self, function, batched, remove_columns, load_from_cache_file=True):
        mapped = Splits()
        for split, rows in self.items():
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            added = function(columns)
            kept = [name for name in columns if name not in remove_columns]
            mapped[split] = Rows({**{name: row[name] for name in kept},
                                  **{name: values[index] for name, values in added.items()}}
                                 for index, row in enumerate(rows))
        return mapped

    def rename_column(self, old, new):
        return Splits((split, Rows({new if name == old else name: value for name, value in row.items()}
                                   for row in rows)) for split, rows in self.items())


def load_dataset(path, name, split=None):
    return Splits((each, _make_rows(each, count)) for each, count in SIZES.items())
