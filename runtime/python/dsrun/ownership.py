"""Finds parameters that a script has taken out of an engine's hands: other objects, other memory."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from .units import Unit

_ADVICE = ("Write values in place, within GatheredParameters(p, modifier_rank=0): p.data.copy_(x), "
           "or load_state_dict without assign=True. Change the model before initialize()")


class OwnedParameters:
    """The parameters of a module that an engine has.

    Between calls of `check`, the dictionaries of the module's parts usually stay as they are: only
    those are compared then.
    """

    def __init__(self, module: nn.Module, units: list[Unit]):
        self.module = module
        self.known = {id(parameter) for unit in units for parameter in unit.parameters.values()}
        self._remember()

    def _remember(self) -> None:
        parts = list(self.module.modules())
        self.children = [part._modules for part in parts]
        self.children_before = [dict(part._modules) for part in parts]
        self.parameters = [part._parameters for part in parts]
        self.ids_before = self._list_ids()

    def _list_ids(self) -> list[int]:
        # By id: `==` of tensors compares their values.
        return [*map(id, itertools.chain.from_iterable(map(dict.values, self.parameters)))]

    def check(self) -> None:
        """Raises RuntimeError if the module has a parameter that the engine does not have."""
        if self.children == self.children_before and self._list_ids() == self.ids_before:
            return
        for name, parameter in self.module.named_parameters():
            if id(parameter) not in self.known:
                raise RuntimeError(
                    f"parameter {name} is not the engine's: it was added, or has replaced another "
                    f"one, after initialize(), and would be neither trained nor saved. {_ADVICE}")
        self._remember()


class GatheredMemory:
    """The engine's memory of gathered parameters, to which they return when their block ends."""

    def __init__(self, parameters: list[tuple[torch.Tensor, str]]):
        self.own = [(parameter, name, parameter.data) for parameter, name in parameters]

    def take_back(self) -> str:
        """Copies values that the script has set (p.data = x) into the engine's memory.

        Returns the error of a parameter that has got another shape or dtype, "" if none has. It
        has the values from before.
        """
        error = ""
        for parameter, name, own in self.own:
            if (parameter.data_ptr() == own.data_ptr() and parameter.shape == own.shape
                    and parameter.stride() == own.stride() and parameter.dtype == own.dtype):
                continue
            if (parameter.shape, parameter.dtype) == (own.shape, own.dtype):
                own.copy_(parameter.data.clone())  # it may be another view of the same memory
            else:
                error = error or (
                    f"parameter {name} has got another shape or dtype within GatheredParameters: "
                    f"{tuple(parameter.shape)} of {parameter.dtype}, before {tuple(own.shape)} of "
                    f"{own.dtype}. Change the model before initialize()")
            parameter.data = own
        return error
