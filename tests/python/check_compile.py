"""Checks torch.compile of a trained module on two ranks: the losses are those without it.

    dsrun -n 2 check_compile.py BACKEND STAGE ...

Ends with status 1 after a failed check, and prints "all checks passed" otherwise.
"""

import os
import sys

import torch
from largest import find_largest
from models import loss_of, make_batch, make_model

import dsrun

RANK = int(os.environ["RANK"])
STEPS = 4
GRAPHS = []


def counting(backend):
    """The backend, which also counts the graphs that it compiles."""
    compile_graph = torch._dynamo.lookup_backend(backend)

    def compile_and_count(graph, inputs, **options):
        GRAPHS.append(graph)
        return compile_graph(graph, inputs, **options)

    return compile_and_count


def make_engine(name, stage, way, backend):
    model = make_model(name)
    if way == "model.compile":
        model.compile(backend=backend)
    elif way == "torch.compile":
        model = torch.compile(model, backend=backend)
    elif way == "layers":
        for layer in model.model.layers if name == "llama" else (model.left, model.right):
            layer.compile(backend=backend)
    zero = {"stage": stage}
    if stage == 3:
        zero["stage3_param_persistence_threshold"] = 0
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "zero_optimization": zero,
              "optimizer": {"type": "AdamW", "params": {"lr": 2e-3}}}
    engine, *_ = dsrun.initialize(model=model, config=config)
    if way == "engine.compile":
        engine.compile(backend=backend)
    return engine


def train(name, stage, way, backend=None):
    torch._dynamo.reset()
    engine = make_engine(name, stage, way, backend)
    losses = []
    for step in range(STEPS):
        loss = loss_of(engine(**make_batch(name, RANK, step)))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    state = engine._zero3_consolidated_16bit_state_dict()
    engine.destroy()
    return losses, state


def check(name, stage, backend):
    expected, _ = train(name, stage, "eager")
    for way in ("engine.compile", "model.compile", "torch.compile", "layers"):
        GRAPHS.clear()
        losses, state = train(name, stage, way, counting(backend))
        difference = find_largest(abs(a - b) for a, b in zip(losses, expected, strict=True))
        text = f"{name} at stage {stage}, {way}, {backend}"
        if RANK == 0:
            print(f"{text}: {len(GRAPHS)} graphs, losses differ by {difference}", flush=True)
            prefix = "_orig_mod." if way == "torch.compile" else ""  # as in its state_dict()
            if set(state) != {prefix + key for key in make_model(name).state_dict()}:
                raise AssertionError(f"{text}: the state has other names")
        if not GRAPHS and (name, way) != ("branches", "layers"):  # PyTorch compiles none of torch.nn's own
            raise AssertionError(f"{text}: nothing was compiled")
        if difference > 2e-6:
            raise AssertionError(f"{text}: losses differ by {difference}")


def main():
    torch.set_num_threads(1)
    backend, *stages = sys.argv[1:]
    for stage in map(int, stages):
        for name in ("llama", "branches"):
            check(name, stage, backend)
    print("all checks passed", flush=True)


if __name__ == "__main__":
    main()
