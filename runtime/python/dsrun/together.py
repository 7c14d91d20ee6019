"""Calls that fail on all ranks if they fail on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _native, comm


def call_on_rank_0(function: Callable[[], Any]) -> None:
    """Calls function() on rank 0; all ranks wait for its end, and raise if it does. Collective."""
    call_together(function if comm.get_rank() == 0 else lambda: None)


def call_together(function: Callable[[], Any]) -> Any:
    """Returns function(); if it raises on a rank, all ranks raise. Collective."""
    result = failure = None
    try:
        result = function()
    except Exception as error:
        failure = error
    raise_together(failure)
    return result


def raise_together(failure: Exception | None) -> None:
    """Raises on all ranks if one has a failure: its own, or that of the first rank with one. Collective."""
    try:
        _native.agree("" if failure is None else f"{type(failure).__name__}: {failure}")
    except RuntimeError:
        if failure is None:
            raise
        raise failure from None
