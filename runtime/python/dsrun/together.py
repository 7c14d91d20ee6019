"""Calls that fail on all ranks if they fail on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _native, comm


def call_on_rank_0(function: Callable[[], Any], kind: type[Exception] = RuntimeError) -> None:
    """Calls function() on rank 0; all ranks wait for its end, and raise if it does. Collective."""
    call_together(function if comm.get_rank() == 0 else lambda: None, kind)


def call_together(function: Callable[[], Any], kind: type[Exception] = RuntimeError) -> Any:
    """Returns function(); if it raises on a rank, all ranks raise, the others `kind`. Collective."""
    result = failure = None
    try:
        result = function()
    except Exception as error:
        failure = error
    raise_together(failure, kind)
    return result


def raise_together(failure: Exception | None, kind: type[Exception] = RuntimeError) -> None:
    """Raises on all ranks if one has a failure: its own, or `kind` with the first one's. Collective."""
    try:
        _native.agree("" if failure is None else f"{type(failure).__name__}: {failure}")
    except RuntimeError as error:
        if failure is not None:
            raise failure from None
        if kind is RuntimeError:
            raise
        raise kind(str(error)) from None
