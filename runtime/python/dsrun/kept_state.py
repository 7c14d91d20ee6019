"""KeptState: the state of a module and of what belongs to it, to be restored after a dry run."""

from __future__ import annotations

import collections
import functools
import logging
import queue
import random
import threading
import types
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

# Values without state that a forward pass changes, and what other threads may change meanwhile.
_NOT_WALKED = (
    type(None), bool, int, float, complex, str, bytes, range, type, torch.dtype, torch.device,
    types.ModuleType, types.BuiltinFunctionType, types.CodeType, logging.Logger, logging.Handler,
    threading.Thread, queue.Queue, weakref.ref, weakref.WeakSet, weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary)


class _Slots(NamedTuple):
    """The attributes of an object in __slots__."""

    owner: Any
    names: list[str]


_MISSING = object()


def _read(holder) -> list:
    """Returns the contents of a holder: its values, of a dictionary keys and values in turn."""
    if isinstance(holder, _Slots):
        return [getattr(holder.owner, name, _MISSING) for name in holder.names]
    if isinstance(holder, types.CellType):
        try:
            return [holder.cell_contents]
        except ValueError:  # it is empty
            return []
    if isinstance(holder, dict):
        base = collections.OrderedDict if isinstance(holder, collections.OrderedDict) else dict
        return [one for item in base.items(holder) for one in item]
    return list(holder)


def _write(holder, contents: list) -> None:
    """Gives a holder these contents; the methods of subclasses of containers are not called."""
    if isinstance(holder, _Slots):
        for name, value in zip(holder.names, contents, strict=True):
            if value is not _MISSING:
                object.__setattr__(holder.owner, name, value)
            elif hasattr(holder.owner, name):
                object.__delattr__(holder.owner, name)
    elif isinstance(holder, types.CellType):
        if contents:
            holder.cell_contents = contents[0]
        else:
            del holder.cell_contents
    elif isinstance(holder, dict):
        base = collections.OrderedDict if isinstance(holder, collections.OrderedDict) else dict
        base.clear(holder)
        for key, value in zip(contents[::2], contents[1::2], strict=True):
            base.__setitem__(holder, key, value)
    elif isinstance(holder, list):
        list.__setitem__(holder, slice(None), contents)
    else:
        base = set if isinstance(holder, set) else collections.deque
        base.clear(holder)
        (base.update if base is set else base.extend)(holder, contents)


def _list_slots(one) -> list[str]:
    names = []
    for cls in type(one).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{cls.__name__.lstrip('_')}{name}"
            if isinstance(cls.__dict__.get(name), types.MemberDescriptorType):
                names.append(name)
    return names


def _list_parts(one) -> tuple[list, Iterable]:
    """Returns (holders that belong to an object, other objects to look into)."""
    if isinstance(one, types.FunctionType):
        return [*(one.__closure__ or ()), vars(one)], [one.__defaults__, one.__kwdefaults__]
    if isinstance(one, types.MethodType):
        return [], [one.__self__, one.__func__]
    if isinstance(one, functools.partial):
        return [vars(one)], [one.func, one.args, one.keywords]
    holders: list = []
    if isinstance(one, (dict, list, set, collections.deque)):
        holders.append(one)
    if isinstance(getattr(one, "__dict__", None), dict):
        holders.append(one.__dict__)
    if names := _list_slots(one):
        holders.append(_Slots(one, names))
    return holders, one if isinstance(one, (tuple, frozenset)) else ()


class KeptState:
    """What can be reached from the roots through attributes, containers, methods and closures.

    Not through modules, classes and global variables of Python, nor through objects of C++. Of
    tensors it has the gradients and attributes; their values have to stay as they are.
    """

    def __init__(self, *roots: Any):
        self._known: dict[int, Any] = {}  # by id; the objects live as long
        self._before: list[tuple[Any, list]] = []
        self._grads: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        self._random = random.getstate(), torch.get_rng_state()
        self._walk(list(roots))

    def _walk(self, left: list) -> None:
        while left:
            one = left.pop()
            if isinstance(one, _NOT_WALKED) or id(one) in self._known:
                continue
            self._known[id(one)] = one
            if isinstance(one, torch.Tensor) and one.is_leaf:
                self._grads.append((one, one.grad))
            holders, others = _list_parts(one)
            left.extend(others)
            for holder in holders:
                if holder is not one and not isinstance(holder, _Slots):
                    if id(holder) in self._known:
                        continue
                    self._known[id(holder)] = holder
                contents = _read(holder)
                self._before.append((holder, contents))
                left.extend(contents)

    def replace(self, replacements: dict[int, Any]) -> None:
        """Puts replacements in place of the objects with these ids, until restore()."""
        for holder, contents in self._before:
            if any(id(one) in replacements for one in contents):
                _write(holder, [replacements.get(id(one), one) for one in contents])

    def restore(self) -> None:
        """Makes everything as it was, each object the same one."""
        for holder, contents in self._before:
            now = _read(holder)
            if len(now) != len(contents) or any(a is not b for a, b in zip(now, contents)):
                _write(holder, contents)
        for tensor, grad in self._grads:
            if tensor.grad is not grad:
                tensor.grad = grad
        random.setstate(self._random[0])
        torch.set_rng_state(self._random[1])
