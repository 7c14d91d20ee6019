"""The units of a module: parameters that ZeRO gathers, releases and reduces together."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from .engine import Engine


@dataclass
class Unit:
    """Parameters that are gathered together, and the modules that use them."""

    name: str
    modules: list[nn.Module] = field(default_factory=list)
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)  # of the modules, by parameter
    also_reads: set[int] = field(default_factory=set)  # earlier units with tied parameters


def set_z3_leaf_modules(model: nn.Module,
                        leaf_module_classes: Iterable[type[nn.Module] | str]) -> list[nn.Module]:
    """Makes each module of these classes one unit with everything inside.

    For modules that run different children on different ranks, such as a mixture of experts: with
    sharded parameters, all ranks have to gather the same units. Call it before `initialize`.
    Classes are given as classes or by name. Returns the modules; raises ValueError if there are
    none.
    """
    found = [module for module in model.modules() if _is_of(module, leaf_module_classes)]
    if not found:
        raise ValueError(f"the model has no module of the classes {leaf_module_classes}")
    for module in found:
        module._dsrun_leaf = True
    return found


def find_leaf_modules(model: nn.Module, section: dict) -> set[int]:
    """Returns the ids of the modules that ds_config's zero_optimization.leaf_module makes units.

    Names without a module have no effect.
    """
    unknown = set(section) - {"classes", "names", "name_suffixes"}
    if unknown:
        raise ValueError(f"zero_optimization.leaf_module has no key {', '.join(sorted(unknown))}")
    for key, value in section.items():
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError(f"zero_optimization.leaf_module.{key} is a list of texts")
    names, suffixes = set(section.get("names", [])), tuple(section.get("name_suffixes", []))
    return {id(module) for name, module in model.named_modules()
            if _is_of(module, section.get("classes", [])) or name in names
            or (suffixes and name.endswith(suffixes))}


class Owner:
    """The engine of a parameter, and the parameter's name there. Copies and pickles have none."""

    def __init__(self, engine: Engine | None = None, name: str = ""):
        self.engine = weakref.ref(engine) if engine is not None else lambda: None
        self.name = name

    def __reduce__(self):
        return (Owner, ())

    def __deepcopy__(self, memo):
        return Owner()


def owner_of(parameter: torch.Tensor) -> tuple[Engine | None, str]:
    """Returns (engine, name) of a parameter that a living engine has, else (None, "")."""
    owner = getattr(parameter, "_dsrun_owner", None)
    engine = None if owner is None else owner.engine()
    return (engine, owner.name) if engine is not None else (None, "")


def declared_reads(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that zero.register_external_parameter has declared for the module."""
    return module.__dict__.setdefault("_dsrun_declared_reads", [])


def is_leaf_module(module: nn.Module) -> bool:
    """Returns whether set_z3_leaf_modules or the config has made the module one unit."""
    return getattr(module, "_dsrun_leaf", False)


def _class_name(module: nn.Module) -> str:
    # torch.nn.modules.linear.Linear is torch.nn.Linear to its users and in ds_config.
    cls = type(module)
    name = f"{cls.__module__}.{cls.__name__}"
    if cls.__module__.startswith("torch.nn.modules.") and hasattr(nn, cls.__name__):
        name = f"torch.nn.{cls.__name__}"
    return name


def _is_of(module: nn.Module, classes) -> bool:
    """Returns whether the module is of one of the classes, which may be given by name."""
    cls = type(module)
    names = (cls.__name__, f"{cls.__module__}.{cls.__qualname__}", _class_name(module))
    return any(wanted in names if isinstance(wanted, str) else isinstance(module, wanted)
               for wanted in classes)


def _block_classes(model: nn.Module) -> set[str]:
    """The classes that transformers' models name as their blocks, of the model and its parts."""
    names: set[str] = set()
    for module in model.modules():
        names.update(getattr(module, "_no_split_modules", None) or [])
    return names


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


class _Partition:
    def __init__(self, model: nn.Module, leaves: set[int]):
        self.blocks = _block_classes(model)
        self.leaves = leaves
        self.units: list[Unit] = []
        self.owner: dict[int, int] = {}  # id of a parameter: index of its unit
        self.unit_of_module: dict[int, int] = {}

    def is_block(self, module: nn.Module, in_list: bool) -> bool:
        if (is_leaf_module(module) or id(module) in self.leaves
                or type(module).__name__ in self.blocks):
            return True
        if self.blocks or not in_list:
            return False
        # A stage of a network, such as an encoder, has blocks of its own.
        return not any(isinstance(child, nn.ModuleList) for child in module.modules())

    def add(self, name: str, module: nn.Module, recurse: bool) -> None:
        if id(module) in self.unit_of_module:  # a module that occurs twice
            return
        index = len(self.units)
        unit = Unit(name or "model")
        for prefix, child in module.named_modules() if recurse else [("", module)]:
            for own, parameter in child._parameters.items():
                if parameter is None:
                    continue
                owner = self.owner.setdefault(id(parameter), index)
                if owner != index:
                    unit.also_reads.add(owner)
                    continue
                full = ".".join(part for part in (name, prefix, own) if part)
                if not any(parameter is known for known in unit.parameters.values()):
                    unit.parameters[full] = parameter
                    unit.classes[full] = _class_name(child)
        unit.modules.append(module)
        self.unit_of_module[id(module)] = index
        self.units.append(unit)

    def visit(self, name: str, module: nn.Module, in_list: bool, is_root: bool) -> None:
        if not _has_parameters(module) and not is_root:
            return
        if not is_root and self.is_block(module, in_list):
            self.add(name, module, recurse=True)
            return
        own = any(parameter is not None for parameter in module._parameters.values())
        # The root may read parameters of other units in its own code.
        if own or is_root:
            self.add(name, module, recurse=False)
        listed = isinstance(module, (nn.ModuleList, nn.Sequential))
        for child_name, child in module.named_children():
            full = f"{name}.{child_name}" if name else child_name
            self.visit(full, child, listed, is_root=False)


def partition(model: nn.Module, leaves: set[int] = frozenset()) -> list[Unit]:
    """Returns the units of a model, each parameter in one unit.

    A block is one unit with everything inside: a module of a class in `_no_split_modules`
    (transformers), or, in models without such names, a module in a ModuleList or Sequential.
    Outside of blocks, each module with parameters of its own is a unit, and the model itself.
    `set_z3_leaf_modules` makes other modules units, and so do `leaves`, the ids of modules. A tied
    parameter belongs to the first unit that has it.
    """
    found = _Partition(model, leaves)
    found.visit("", model, in_list=False, is_root=True)
    return found.units


def persistent_buffers(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Returns the buffers that a checkpoint has, each under its first name."""
    first = name_buffers(model)
    return [(name, buffer) for name, (own, buffer) in first.items() if name == own]


def name_buffers(model: nn.Module) -> dict[str, tuple[str, torch.Tensor]]:
    """Returns the first name and the buffer, by each name that a buffer has in the state_dict."""
    first: dict[int, str] = {}
    named = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                full = f"{prefix}.{name}" if prefix else name
                named[full] = (first.setdefault(id(buffer), full), buffer)
    return named
