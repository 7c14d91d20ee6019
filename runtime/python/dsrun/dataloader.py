"""Loaders of training data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class RepeatingLoader:
    """An endless iterator over a loader, which begins again at its end."""

    def __init__(self, loader: Iterable):
        self.loader = loader
        self.data_iter = iter(loader)

    def __iter__(self) -> Iterator:
        return self

    def __next__(self):
        try:
            return next(self.data_iter)
        except StopIteration:
            self.data_iter = iter(self.loader)
            return next(self.data_iter)
