"""The end of the process: dsrun hears of an exception, and the ranks' connections are closed."""

import atexit
import sys
import traceback

from . import _native

_show = sys.excepthook


def _report(kind, error, trace) -> None:
    _show(kind, error, trace)
    last = traceback.extract_tb(trace)[-1:] if trace is not None else []
    where = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    _native.report_failure(f"{kind.__name__}: {error}{where}")


def install() -> None:
    sys.excepthook = _report
    atexit.register(_native.leave)
