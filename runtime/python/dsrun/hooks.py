"""Hooks that tell the engine of the passes through a module.

Each unit's module enters and leaves its unit around its forward. Reads of parameters outside of
the units that declare them are watched: the unit that runs then becomes their reader.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from .ownership import OwnedParameters
from .units import Unit, declared_reads


def _map_tensors(function, tree, in_place: bool = True):
    """Returns the tree with function(tensor) in place of its tensors.

    Looks into tuples, lists, dictionaries and dataclasses, in one order, and at the attributes of
    other objects, without looking into those: the caches of transformers stay as they are. With
    `in_place`, what can change is changed, and stays the same object: a module may append to a list
    of its caller.
    """
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, tuple):
        mapped = [_map_tensors(function, value, in_place) for value in tree]
        if all(map(operator.is_, mapped, tree)):
            return tree
        return _remake(tree, mapped)
    if type(tree) is list:
        items, put = enumerate(tree), list.__setitem__
    elif isinstance(tree, dict):  # also the outputs of transformers
        items, put = tree.items(), operator.setitem
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        items = [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]
        put = object.__setattr__
    elif _has_plain_attributes(tree):
        items = [item for item in vars(tree).items() if isinstance(item[1], torch.Tensor)]
        put = object.__setattr__
    else:
        return tree
    mapped = [(name, value, _map_tensors(function, value, in_place)) for name, value in items]
    changed = tree if in_place else copy.copy(tree)
    for name, value, new in mapped:
        if new is not value:
            put(changed, name, new)
    return changed


def _remake(old: tuple, values: list) -> tuple:
    """Returns a tuple of the same class with other values, whatever its constructor takes."""
    if hasattr(type(old), "n_sequence_fields"):  # torch.return_types
        return type(old)(values)
    new = tuple.__new__(type(old), values)
    if hasattr(old, "__dict__"):
        vars(new).update(vars(old))
    return new


def _has_plain_attributes(tree) -> bool:
    return hasattr(tree, "__dict__") and not callable(tree) and not isinstance(
        tree, (type, types.ModuleType))


def cast_tensors(tree: Any, dtype: torch.dtype) -> Any:
    """Returns the tree with its floating-point tensors in the dtype."""
    return _map_tensors(lambda t: t.to(dtype) if t.is_floating_point() else t, tree, in_place=False)


def count_samples(tree: Any) -> int:
    """Returns the size of the first tensor with a dimension along that; 0 without one."""
    return next((tensor.shape[0] for tensor in _list_tensors(tree) if tensor.dim() > 0), 0)


def _is_result(tensor: torch.Tensor) -> bool:
    """Returns whether gradients flow through the tensor to operations before it."""
    return tensor.requires_grad and not tensor.is_leaf


def _list_tensors(tree) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def collect(tensor):
        found.append(tensor)
        return tensor

    _map_tensors(collect, tree)
    return found


def map_differentiable(function: Callable[[list[torch.Tensor]], Iterable[torch.Tensor]],
                       tree: Any) -> Any:
    """Replaces the tensors of a tree that gradients flow through by function(list)."""
    chosen = [tensor for tensor in _list_tensors(tree) if _is_result(tensor)]
    if not chosen:
        return tree
    replaced = iter(function(chosen))
    return _map_tensors(lambda t: next(replaced) if _is_result(t) else t, tree)


def _rebase(given: list) -> None:
    """Gives inputs that a module has changed in place their new place in the graph.

    The module had replacements that share their memory.
    """
    for old, new, version in given:
        if new._version != version:
            with torch.autograd._unsafe_preserve_version_counter((old, new)):
                old.copy_(new)


def in_backward() -> bool:
    """Returns whether autograd runs a backward pass on this thread."""
    return torch._C._current_graph_task_id() != -1


class WatchedParameters(dict):
    """A module's `_parameters` that reports each read of one."""

    def __init__(self, parameters: dict[str, nn.Parameter | None],
                 on_read: Callable[[nn.Parameter], None]):
        super().__init__(parameters)
        self.on_read = on_read

    def __getitem__(self, name):
        parameter = super().__getitem__(name)
        if parameter is not None:
            self.on_read(parameter)
        return parameter

    # copy.deepcopy and pickle get a plain dictionary: the copy belongs to no engine.
    def __reduce__(self):
        return (dict, (dict(self),))

    def __deepcopy__(self, memo):
        return {name: copy.deepcopy(value, memo) for name, value in self.items()}


class Passes:
    """The passes through one module. Its hooks and watched parameters refer to it."""

    def __init__(self, model: nn.Module, units: list[Unit], native: Any):
        self.native = native
        self.units = units
        self.owner = {id(p): i for i, unit in enumerate(units) for p in unit.parameters.values()}
        self.frames: list[int] = []  # the units that run, innermost last
        self.given: list[list] = []  # the replaced inputs of each
        self.readable: set[int] = set()  # the units with parameters that are present for sure
        self.reads = [set(unit.also_reads) for unit in units]
        # The outer units of calls whose inputs have no gradients: see _read_with.
        self.outer: list[set[int]] = [set() for _ in units]
        # The node of the graph that runs a function of checkpoint() again, and the units that the
        # function has read.
        self.recomputing = None
        self.recomputed: set[int] = set()
        self.handled: list = []  # the exception that was handled when each module was called
        self.depth = 0
        self.closed = False
        self._suspensions = 0
        self.handles = []
        self.watched: list[nn.Module] = []
        self._attach(model)
        self.owned = OwnedParameters(model, units)
        for module in model.modules():
            if "_dsrun_declared_reads" in module.__dict__:
                self.add_declared_reads(module)

    def __deepcopy__(self, memo):
        return None

    def _attach(self, model: nn.Module) -> None:
        by_module = {id(module): i for i, unit in enumerate(self.units) for module in unit.modules}
        for module in model.modules():
            index = by_module.get(id(module))
            if index is None and not any(id(m) in by_module for m in module.modules()):
                continue
            # Modules that only hold units begin and end passes when they are called themselves.
            self.handles.append(module.register_forward_pre_hook(
                _Hook(self, index, "before"), prepend=True, with_kwargs=True))
            self.handles.append(module.register_forward_hook(
                _Hook(self, index, "after"), always_call=True))
        for module in model.modules():
            if any(p is not None for p in module._parameters.values()):
                self.watched.append(module)
                module._parameters = WatchedParameters(module._parameters, self.on_read)

    def add_declared_reads(self, module: nn.Module) -> None:
        """Makes the unit that runs while the module does a reader of what the module declares."""
        unit = self._unit_around(module)
        for parameter in declared_reads(module):
            if unit is not None and id(parameter) in self.owner:
                self._add_read(unit, self.owner[id(parameter)])
        if unit is not None and self.frames[-1:] == [unit]:
            self.enter(unit)

    def _unit_around(self, module: nn.Module) -> int | None:
        found = [(len(list(outer.modules())), index) for index, unit in enumerate(self.units)
                 for outer in unit.modules if any(module is inner for inner in outer.modules())]
        return min(found)[1] if found else None

    def detach(self) -> None:
        """Removes the hooks and the watch on parameters; the module runs by itself from now on."""
        if self.closed:  # another engine may have hooks by now
            return
        self.closed = True
        for handle in self.handles:
            handle.remove()
        for module in self.watched:  # with all that the script has added or replaced since
            module.__dict__["_parameters"] = dict(module._parameters)

    @property
    def suspended(self) -> bool:
        """Whether the module runs by itself, as within GatheredParameters."""
        return self._suspensions > 0

    def suspend(self) -> None:
        """Lets the module run by itself until resume() was called as often."""
        self._suspensions += 1

    def resume(self) -> None:
        """Undoes one `suspend`."""
        self._suspensions -= 1

    @property
    def is_in_forward(self) -> bool:
        """Whether a forward pass of the model has begun and not ended."""
        return self.depth > 0

    def gather_for_read(self, parameters: Iterable[torch.Tensor]) -> None:
        """Gathers parameters for the unit that runs, within a forward pass."""
        # Twice: one that was gathered first may have been released for a later one.
        for parameter in [*parameters, *parameters]:
            self.on_read(parameter)

    def enter(self, unit: int) -> None:
        """Gathers the unit's parameters, and those that it has read before."""
        self.native.enter(unit)
        self.readable = {unit} | self.reads[unit]

    def on_read(self, parameter: torch.Tensor) -> None:
        """Gathers a parameter of another unit, and makes the unit that runs its reader."""
        recomputes = not self.frames and in_backward()  # a function of checkpoint(), not a unit
        if self.closed or self.suspended or not (self.frames or recomputes):
            return
        unit = self.owner.get(id(parameter))
        if unit is None:
            return
        if recomputes:
            self._read_recomputed(unit)
            self.recomputed.add(unit)
        if unit in self.readable:
            return
        if recomputes:
            self.enter(unit)
            return
        frame = self.frames[-1]
        self._add_read(frame, unit)
        self.enter(frame)

    def _read_recomputed(self, unit: int) -> None:
        """Makes the unit a reader of those that the running function of checkpoint() has read.

        In the backward pass, the function's operations with those come after the unit.
        """
        node = torch._C._current_autograd_node()
        if node is not self.recomputing:  # another function, or another call of it
            self.recomputing = node
            self.recomputed = set()
            self.readable = set()
        for read in self.recomputed:
            self._add_read(unit, read)

    def _add_read(self, unit: int, other: int) -> None:
        if other == unit or other in self.reads[unit] or not self.units[other].parameters:
            return
        self.reads[unit].add(other)
        self.native.reads_also(unit, other)
        for inner, outer in enumerate(self.outer):
            if unit in outer:
                self._add_read(inner, other)

    def _read_with(self, unit: int, tree) -> None:
        """Makes the unit, which is called with these inputs, a reader of what it needs besides.

        These are parameters among the inputs. Where no gradients flow back through the inputs, the
        backward pass goes from the unit to other operations of the outer one without being noticed:
        the outer one's parameters have to be present, too.
        """
        tensors = _list_tensors(tree)
        for tensor in tensors:
            if id(tensor) in self.owner:
                self._add_read(unit, self.owner[id(tensor)])
        if not any(map(_is_result, tensors)):
            self.outer[unit] |= {self.frames[-1]} | self.outer[self.frames[-1]]
            for outer in self.outer[unit]:
                for read in {outer} | self.reads[outer]:
                    self._add_read(unit, read)

    def is_used(self, unit: int) -> bool:
        """Whether the unit has or reads parameters: the root often does neither."""
        return bool(self.units[unit].parameters) or bool(self.reads[unit])

    def leave(self, unit: int, tree: Any) -> tuple[Any, list]:
        """Ends the unit, which returns the tree, or calls another unit with it.

        Returns (tree, list of (original, replacement, its version)).
        """
        given: list = []
        if not self.is_used(unit):
            return tree, given

        def replace(tensors):
            replaced = self.native.leave(unit, tensors)
            given.extend((old, new, new._version) for old, new in zip(tensors, replaced, strict=True))
            return replaced

        return map_differentiable(replace, tree), given

    def _is_trained(self, unit: int) -> bool:
        return any(p.requires_grad for p in self.units[unit].parameters.values())

    def forget(self) -> None:
        """Forgets the pass in progress: the next call of a module begins another."""
        self.depth = 0
        self.handled.clear()
        self._forget_calls()

    def _forget_calls(self) -> None:
        self.frames.clear()
        self.given.clear()
        self.recomputing = None
        self.recomputed = set()
        self.readable = set()

    def before(self, unit: int | None, args: tuple, kwargs: dict[str, Any]) -> tuple | None:
        """The hook before a module's forward. Returns its changed inputs, or None."""
        self.handled.append(sys.exc_info()[1])
        if not in_backward():
            if self.depth == 0:
                if torch.is_grad_enabled():  # else functional_call may evaluate with other ones
                    self.owned.check()
                del self.handled[:-1]
                self._forget_calls()
                evaluates = not torch.is_grad_enabled() and not self.owned.module.training
                self.native.begin_forward(count_samples((args, kwargs)), _count_labels(kwargs),
                                          evaluates)
            self.depth += 1
        if unit is None:
            return None
        changed, given = None, []
        if self.frames:
            # In the backward pass, the outer unit's operations before this point come after the
            # inner unit, which may have released the outer one's parameters.
            if torch.is_grad_enabled():
                self._read_with(unit, (args, kwargs))
            changed, given = self.leave(self.frames[-1], (args, kwargs))
        elif in_backward():
            self._read_recomputed(unit)
        self.frames.append(unit)
        self.given.append(given)
        if self.is_used(unit):
            self.enter(unit)
        return changed

    def after(self, unit: int | None, output: Any) -> Any:
        """The hook after a module's forward, also a failed one. Returns its changed output."""
        # Within an `except` block of the script, an exception is handled from the start.
        handled = self.handled.pop() if self.handled else None
        failed = output is None and sys.exc_info()[1] is not handled
        if unit is not None and self.frames:
            self.frames.pop()
            given = self.given.pop()
            if not failed:
                _rebase(given)
                output, left = self.leave(unit, output)
                if not left and self.frames and torch.is_grad_enabled() and self._is_trained(unit):
                    # Its backward pass goes unnoticed: its result is its input, changed in place.
                    self._add_read(self.frames[-1], unit)
            self.readable = set()
        if in_backward():
            return output
        self.depth = max(0, self.depth - 1)
        if self.depth > 0 or failed:
            return output
        ended = False

        def end(tensors):
            nonlocal ended
            ended = True
            return self.native.end_forward(tensors)

        output = map_differentiable(end, output)
        if not ended:
            self.native.end_forward([])
        return output


class _Hook:
    """A hook that a copy of the module loses: it belongs to the engine's module alone."""

    is_skipped = False  # by torch.compile

    def __init__(self, passes: Passes | None, unit: int | None, kind: str):
        self.passes, self.unit, self.kind = passes, unit, kind

    def __deepcopy__(self, memo):
        return _Hook(None, self.unit, self.kind)

    def __reduce__(self):
        return (_Hook, (None, self.unit, self.kind))

    def __call__(self, module, *call):
        if "torch._dynamo" in sys.modules:
            return _run_untraced(self, call)
        return self.run(call)

    def run(self, call):
        if self.passes is None or self.passes.closed or self.passes.suspended:
            return None
        if self.kind == "before":
            return self.passes.before(self.unit, *call)
        return self.passes.after(self.unit, call[-1])  # None after an exception, which goes on


@torch._disable_dynamo
def _run_untraced(hook: _Hook, call):
    """Runs the hook between the graphs of torch.compile, which has no trace of the engine."""
    if not _Hook.is_skipped:
        # By itself, too, it would be compiled, once for each kind of its arguments.
        _Hook.is_skipped = True
        torch._dynamo.eval_frame.skip_code(_Hook.__call__.__code__)
    return hook.run(call)


class _Suspension:
    """Stands for the handles of the engine's hooks: `remove` suspends them."""

    def __init__(self, passes: Passes):
        self.passes, self.is_removed = passes, False

    def remove(self) -> None:
        if not self.is_removed:
            self.is_removed = True
            self.passes.suspend()


class ParameterOffload:
    """The hooks of an engine that shards parameters, by the names of DeepSpeed's optimizer.

    Scripts such as TRL's take them off while a model with gathered parameters generates.
    """

    def __init__(self, module: nn.Module, passes: Passes):
        self.module = module
        self.backward_hooks: list = []
        self._suspension = _Suspension(passes)
        self.forward_hooks = [self._suspension]

    def _register_deepspeed_module(self, module: nn.Module) -> None:
        """Sets the hooks again."""
        if module is not self.module:
            raise ValueError("the engine's hooks belong to its own module")
        suspension = self._suspension
        if suspension.is_removed:
            suspension.is_removed = False
            suspension.passes.resume()
        self.forward_hooks = [suspension]


def no_external_parameters() -> Iterator:
    """A module's ds_external_parameters(): the engine finds such reads by itself."""
    return iter(())


def _count_labels(kwargs) -> int:
    labels = kwargs.get("labels")
    return labels.numel() if isinstance(labels, torch.Tensor) else 0
