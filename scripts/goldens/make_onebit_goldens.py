#!/usr/bin/env python3
"""Makes tests/numerics/goldens/onebit.json: thirty steps of DeepSpeed's 1-bit optimizers on one and two ranks.

    python scripts/goldens/make_onebit_goldens.py tests/numerics/goldens/onebit.json

Needs torch 2.11 and deepspeed 0.19.6 (0.19.8 has these optimizers no more) on a machine without GPU; the test
that reads the golden (tests/numerics/onebit_goldens_test.cc) needs no Python. The model, its first values and
its data are those of make_optimizer_goldens.py; rank r of W takes the r-th W-th of a step's samples.

A run is {"name", "program", "world_size", "precision", "optimizer": that section of a ds_config,
"gradient_clipping", "accumulation": micro-batches of a step, "losses": mean over them and the ranks,
"after": {steps: parameters by name, those of rank 0}}.
In bf16 and fp16 the optimizers run inside FP16_Optimizer and FP16_UnfusedOptimizer, as the engine has them.

What is done to DeepSpeed, and why:
- Signs are packed by numpy: its kernels are for GPUs (cupy) and XPUs. Everything else of its
  CompressedBackend runs as it is, over gloo.
- Gloo, unlike NCCL, wants a scale of shape (1) where (1) is received: it is reshaped.
- In fp32 the optimizer is stepped once with zero gradients when it is built, as the engine does in fp16 and bf16:
  the first call initialises buffers, counts as a step and updates nothing.
- FP16_Optimizer makes one tensor of all parameters, with those that get no gradient: exp_avg_mask names them, or
  1-bit Adam would divide their share of the scale by eps.
- Gradients are averaged here when the optimizer has left the engine's switch on, and clipped by the rank's own
  norm, as the engine does.
- On one rank 0/1 Adam forgets the gradients between refreshes of the variance: it is told that there are two,
  and that compressing changes nothing.

0/1 Adam's clipping lies between the norms of two ranks' gradients at its first one-bit update. In 16 bit, where all
parameters share a scale, ranks that both clip have equal scales, and where one says + and the other -, the sign of
their mean is that of the last bit of a norm.
"""

import itertools
import json
import os
import pathlib
import sys
import types

os.environ["DS_ACCELERATOR"] = "cpu"

import numpy
import torch
import torch.multiprocessing as mp

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from make_optimizer_goldens import LAYERS, SAMPLES, TOKENS, VOCABULARY, first_values, numbers

STEPS = 30

# name, type, parameters, clipping, steps after which the parameters are written
RUNS = [
    ("OneBitAdam", "OneBitAdam", dict(lr=0.02, betas=[0.9, 0.95], freeze_step=12, weight_decay=0.1), 0.0,
     (1, 11, 12, 13, STEPS)),
    ("OneBitAdam_clipped", "OneBitAdam", dict(lr=0.02, betas=[0.8, 0.95], eps=1e-4, freeze_step=9), 0.3,
     (1, 8, 9, STEPS)),
    ("OneBitLamb", "OneBitLamb", dict(lr=0.02, betas=[0.9, 0.95], freeze_step=12, weight_decay=0.1), 0.0,
     (1, 11, 12, 13, STEPS)),
    ("OneBitLamb_clipped", "OneBitLamb", dict(lr=0.02, betas=[0.9, 0.95], freeze_step=8, coeff_beta=0.7, factor_max=1.3,
                                              factor_min=0.8, factor_threshold=0.05, max_coeff=3.0, min_coeff=0.2),
     0.3, (1, 7, 8, STEPS)),
    ("ZeroOneAdam", "ZeroOneAdam", dict(lr=0.02, betas=[0.9, 0.95], weight_decay=0.1, var_freeze_step=18,
                                        var_update_scaler=3, local_step_scaler=3, local_step_clipper=4), 0.0,
     (1, 3, 4, 17, 18, STEPS)),
    ("ZeroOneAdam_clipped", "ZeroOneAdam", dict(lr=0.02, betas=[0.9, 0.95], eps=1e-4, var_freeze_step=100,
                                                var_update_scaler=2), 0.385, (1, 3, STEPS)),
]
# The unclipped ones again, with two micro-batches a step.
RUNS = [(*run, 1) for run in RUNS] + [(f"{kind}_accumulated", kind, params, clip, (1, STEPS), 2)
                                      for _, kind, params, clip, _ in RUNS if not clip]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SCALE = 256.0
CLASSES = {"OneBitAdam": ("adam", "OnebitAdam"), "OneBitLamb": ("lamb", "OnebitLamb"),
           "ZeroOneAdam": ("zoadam", "ZeroOneAdam")}


class NumpyPacker:

    def load(self):
        return self

    def packbits(self, values, count, rank):
        return torch.from_numpy(numpy.packbits(values.numpy() >= 0))

    def unpackbits(self, packed, count, rank):
        return torch.from_numpy(numpy.unpackbits(packed.numpy()).astype(numpy.float32)) * 2 - 1


def loss_of(values, part, parts):
    """Of the part-th of all parts, of which a step has `parts`."""
    samples = SAMPLES // parts
    first = part * samples * TOKENS
    places = torch.arange(first, first + samples * TOKENS)
    tokens = (places * places * 7 + places * 3) % VOCABULARY
    labels = (tokens * 5 + 1) % VOCABULARY
    hidden = values["table"][tokens]
    for i in range(LAYERS):
        inner = hidden @ values[f"layer.{i}.w"] + values[f"layer.{i}.b"]
        hidden = hidden + torch.tanh(inner) * values[f"layer.{i}.scale"]
    logits = (hidden * values["head.gain"]) @ values["table"].T
    return torch.nn.functional.cross_entropy(logits.float(), labels)


def make_optimizer(section, parameters, engine, world_size):
    module, name = CLASSES[section["type"]]
    module = __import__(f"deepspeed.runtime.fp16.onebit.{module}", fromlist=[name])
    optimizer = getattr(module, name)(parameters, engine, comm_backend_name="compressed", **section["params"])
    if world_size == 1 and name == "ZeroOneAdam":
        optimizer.size = 2
        optimizer.comm_backend_handle.compressed_allreduce = lambda buffer, *unused: buffer.clone()
    return optimizer


def initialise(optimizer, parameters):
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def wrap(optimizer, engine, dtype, clip, trained):
    """What the engine makes of it in 16 bit."""
    from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
    from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
    settings = dict(deepspeed=engine, low_precision_dtype=dtype, clip_grad=clip, verbose=False,
                    dynamic_loss_scale=True,
                    dynamic_loss_args={"init_scale": SCALE, "scale_window": 1000, "min_scale": 1.0})
    if type(optimizer).__name__ == "OnebitLamb":
        return FP16_UnfusedOptimizer(optimizer, **settings)
    mask = torch.cat([torch.full((p.numel(),), float(not key.endswith("unused"))) for key, p in trained.items()])
    optimizer.param_groups[0]["exp_avg_mask"] = mask
    return FP16_Optimizer(optimizer, **settings)


def mean_over_ranks(tensor, world_size):
    torch.distributed.all_reduce(tensor)
    return tensor.div_(world_size)


def train(run, rank, world_size, precision):
    import deepspeed
    name, kind, params, clip, written, accumulation = run
    section = {"type": kind, "params": params}
    values = {key: torch.nn.Parameter(value.to(DTYPES[precision], copy=True), requires_grad=not key.endswith("scale"))
              for key, value in first_values().items()}
    flat = precision != "fp32" and kind != "OneBitLamb"
    trained = {key: p for key, p in values.items() if p.requires_grad and (flat or not key.endswith("unused"))}
    engine = types.SimpleNamespace(mpu=None, local_rank=rank, enable_backward_allreduce=True)
    optimizer = make_optimizer(section, list(trained.values()), engine, world_size)
    if precision == "fp32":
        initialise(optimizer, list(trained.values()))
    else:
        optimizer, written = wrap(optimizer, engine, DTYPES[precision], clip, trained), (1, STEPS)
    scale = SCALE if precision == "fp16" else 1.0
    result = dict(name=name, program=f"DeepSpeed {deepspeed.__version__}: {CLASSES[kind][1]}", world_size=world_size,
                  precision=precision, optimizer=section, gradient_clipping=clip, accumulation=accumulation,
                  losses=[], after={})
    for step in range(STEPS):
        mean = torch.zeros([], dtype=torch.float64)
        for micro_step in range(step * accumulation, (step + 1) * accumulation):
            loss = loss_of(values, micro_step * world_size + rank, world_size * accumulation)
            (loss / accumulation * scale).backward()
            mean += loss.item() / accumulation
        if engine.enable_backward_allreduce:
            for p in trained.values():
                if p.grad is not None:
                    mean_over_ranks(p.grad, world_size)
        if clip and precision == "fp32":
            torch.nn.utils.clip_grad_norm_(trained.values(), clip)
        optimizer.step()
        optimizer.zero_grad()
        result["losses"].append(float(f"{mean_over_ranks(mean, world_size).item():.9g}"))
        if step + 1 in written:
            result["after"][str(step + 1)] = {key: numbers(p.float()) for key, p in trained.items()}
    return result


def work(rank, world_size, port, results):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_SIZE=str(world_size),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    import deepspeed
    from deepspeed.runtime.comm import compressed
    compressed.PackbitsBuilder = NumpyPacker
    # Not used here, and compiled when first asked for.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    compressed.dist.all_gather = lambda outputs, tensor, group: torch.distributed.all_gather(
        outputs, tensor.view_as(outputs[0]), group=group)
    deepspeed.init_distributed("gloo")
    for precision, run in itertools.product(DTYPES, RUNS):
        result = train(run, rank, world_size, precision)
        if rank == 0:
            results.append(result)
    torch.distributed.destroy_process_group()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with mp.Manager() as manager:
        results = manager.list()
        for world_size, port in ((1, 29651), (2, 29652)):
            mp.spawn(work, args=(world_size, port, results), nprocs=world_size)
        text = ",\n".join(json.dumps(result, separators=(",", ":")) for result in results)
    pathlib.Path(sys.argv[1]).write_text(f"[\n{text}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
