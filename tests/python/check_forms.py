"""Checks how modules may be written: each form trains as in PyTorch, at stage 0 and with sharded parameters.

    dsrun -n 2 check_forms.py      ends with status 1 after a failed check
"""

import functools
import os
import types

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dsrun
from dsrun import utils, zero

RANK, RANKS, STEPS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), 3


class OwnBesideInner(nn.Module):
    """Uses parameters of its own between calls of inner modules whose inputs have no gradients."""

    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(4, 4), nn.Linear(4, 4)
        self.gains = nn.ParameterList([torch.ones(4), torch.ones(4)])
        self.gain = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return (self.image(x) * self.gain * self.gains[0] * self.text(x + 1) * self.gains[1]).sum()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)


class Append(Block):
    def forward(self, x, losses, named):
        y = torch.tanh(self.inner(x))
        losses.append(y.pow(2).mean())
        named[f"loss {len(named)}"] = y.abs().mean()
        return y


class ChangedContainers(nn.Module):
    """Its blocks append to a list, and set keys of a dictionary, of their caller."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Append() for _ in range(3))
        self.position = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        losses, named, x = [], {}, x + self.position
        for block in self.blocks:
            x = block(x, losses, named)
        assert len(losses) == len(named) == 3
        return x.sum() + sum(losses) + sum(named.values())


class Wrap(Block):
    def forward(self, state):
        return types.SimpleNamespace(hidden=torch.tanh(self.inner(state.hidden)))


class Objects(nn.Module):
    """Its blocks take and return objects with tensors as attributes."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Wrap() for _ in range(3))

    def forward(self, x):
        state = types.SimpleNamespace(hidden=x)
        for block in self.blocks:
            state = block(state)
        return state.hidden.pow(2).mean()


class Add(Block):
    def forward(self, x):
        x += torch.tanh(self.inner(x.clone()))


class InPlace(nn.Module):
    """Its blocks change their input and return nothing."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Add() for _ in range(2))
        self.position = nn.Parameter(torch.ones(4))

    def forward(self, x):
        x = x * self.position
        for block in self.blocks:
            block(x)
        return x.pow(2).sum()


class Recomputed(nn.Module):
    """Recomputes a function that reads the weight of a module elsewhere."""

    def __init__(self, recompute):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.recompute = recompute

    def last(self, x):
        return self.blocks[0](x) @ self.first.weight

    def before_its_block(self, x):
        return self.blocks[1](x @ self.first.weight)

    def forward(self, x):
        x = self.first(x)
        for step in (*self.blocks, self.before_its_block, self.last):
            x = self.recompute(step, x)
        return x.pow(2).mean()


class Pair(tuple):
    def __new__(cls, first, second):
        return super().__new__(cls, (first, second))


class Halves(Block):
    def forward(self, pair):
        return Pair(torch.tanh(self.inner(pair[0])), pair[1] + pair[0])


class Tuples(nn.Module):
    """Its blocks take and return a tuple of a class with a constructor of its own."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Halves() for _ in range(3))

    def forward(self, x):
        pair = Pair(x, x)
        for block in self.blocks:
            pair = block(pair)
            assert type(pair) is Pair
        return pair[1].pow(2).mean()


class Declared(nn.Module):
    """Reads weights by references of its own, which it declares."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(Reader(self.first.weight) for _ in range(2))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x.pow(2).mean()


class Reader(Block):
    def __init__(self, weight):
        super().__init__()
        self.kept = [weight]
        zero.register_external_parameter(self, weight)

    def forward(self, x):
        return torch.tanh(self.inner(x @ self.kept[0]))


class Retried(InPlace):
    """Is called while its caller handles an exception, as a second try is."""

    def forward(self, x):
        try:
            raise MemoryError
        except MemoryError:
            return super().forward(x)


class Choice(nn.Module):
    """Runs one of its layers, which depends on the rank's samples."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x, choice):
        return x + self.layers[choice](x)


class Choices(nn.Module):
    def __init__(self, is_leaf):
        super().__init__()
        self.first, self.choice, self.last = nn.Linear(4, 4), Choice(), nn.Linear(4, 4)
        if is_leaf:
            utils.set_z3_leaf_modules(self, [Choice])

    def forward(self, x):
        return self.last(self.choice(self.first(x), int(x[0, 0] > 0))).square().mean()


FORMS = {"own parameters beside inner modules": OwnBesideInner, "changed containers": ChangedContainers,
         "objects": Objects, "changed inputs": InPlace, "changed inputs in an except block": Retried,
         "declared reads": Declared, "tuples": Tuples, "leaf modules": lambda: Choices(True),
         **{f"recomputed functions, {name}": functools.partial(Recomputed, recompute) for name, recompute in {
             "PyTorch": functools.partial(checkpoint, use_reentrant=False),
             "PyTorch, reentrant": functools.partial(checkpoint, use_reentrant=True),
             "dsrun.checkpointing": dsrun.checkpointing.checkpoint}.items()}}


def make(form):
    torch.manual_seed(0)
    return form()


def batch_of(step, rank):
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(10 * step + rank))


def train_alone(form):
    """Returns this rank's losses under PyTorch, with the mean gradients of all ranks."""
    model = make(form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        each = [model(batch_of(step, rank)) for rank in range(RANKS)]
        (sum(each) / RANKS).backward()
        optimizer.step()
        losses.append(each[RANK].item())
    return losses


def train(form, stage):
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0,
              "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
    engine, *_ = dsrun.initialize(model=make(form), config=config)
    losses = []
    for step in range(STEPS):
        loss = engine(batch_of(step, RANK))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    return losses


def ranks_that_part_without_a_leaf_module_are_an_error():
    part = [[bool(batch_of(step, rank)[0, 0] > 0) for rank in range(RANKS)] for step in range(STEPS)]
    assert any(len(set(choices)) > 1 for choices in part), "the ranks choose alike"
    try:
        train(lambda: Choices(False), 3)
    except RuntimeError as error:
        for name in ("choice.layers.0", "choice.layers.1"):
            assert name in str(error), f"{error} does not name {name}"
    else:
        raise AssertionError("the ranks ran other layers without an error")


def main():
    torch.set_num_threads(1)
    for name, form in FORMS.items():
        expected = train_alone(form)
        for stage in (0, 3):
            losses = train(form, stage)
            torch.testing.assert_close(losses, expected, rtol=2e-6, atol=2e-7, msg=lambda text: (
                f"{name} at stage {stage}: {losses}, PyTorch {expected}"))
    ranks_that_part_without_a_leaf_module_are_an_error()
    print("all checks passed", flush=True)


if __name__ == "__main__":
    main()
