"""Calls that fail on all ranks if they fail on one."""

from __future__ import annotations

import json
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


def compare_ranks(value: Any, describe: Callable[[Any, int, Any], str]) -> None:
    """Raises ValueError on all ranks if another rank's value differs from rank 0's. Collective.

    `value` has values of JSON alone. `describe(value of rank 0, other rank, its value)` returns the
    error, "" for values that are as good as equal.
    """
    if comm.get_world_size() == 1:
        return
    first, *others = map(json.loads, _native.gather_texts(json.dumps(value)) or ["null"])
    errors = (describe(first, rank, other) for rank, other in enumerate(others, 1))
    error = _native.broadcast_text(next(filter(None, errors), ""))
    if error:
        raise ValueError(error)
