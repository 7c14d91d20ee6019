"""The end of the process: dsrun hears of an exception, and the ranks' connections are closed."""

import atexit
import signal
import sys
import traceback
import weakref

import torch

from . import _native

# The engines of the process, which end before its connections do.
engines: weakref.WeakSet = weakref.WeakSet()

_show = sys.excepthook


def _is_consequence(error) -> bool:
    """Returns whether the exception comes from one that says that another rank is missing."""
    while error is not None:
        if isinstance(error, torch.distributed.DistNetworkError):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def _report(kind, error, trace) -> None:
    _show(kind, error, trace)
    last = traceback.extract_tb(trace)[-1:] if trace is not None else []
    where = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    _native.report_failure(f"{kind.__name__}: {error}{where}", _is_consequence(error))


def _leave() -> None:
    for engine in list(engines):
        engine.destroy()
    _native.leave()
    # dsrun stops ranks that wait for this one. Its own status, which is the reason, shall be seen.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def install() -> None:
    """Sets the hooks of this module in the interpreter; `import dsrun` calls it once."""
    sys.excepthook = _report
    atexit.register(_leave)
