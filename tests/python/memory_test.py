#!/usr/bin/env python3
"""Runs the extension module of the Python package under Valgrind, on two ranks.

    memory_test.py --bin DIR [--python PATH]      as trainers_test.py

The program trains at stages 0 to 3, and a pipeline, with zero.Init, offloaded state, checkpoints, exceptions and
destroyed engines. Memcheck may report no invalid read, write or free with a frame of dsrun/_native. Those of the
interpreter and of PyTorch alone do not count, nor do undefined values, which PyTorch computes with and discards. At its
end the program gives the extension a tensor in freed memory, which memcheck has to report: else the test says nothing.
Status 77 without valgrind.
"""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

from trainers_test import exit_without, parse_options

MARK = "the next error is wanted"
PROGRAM = """
import ctypes, os, sys, torch, dsrun
from dsrun import pipe, utils, zero
torch.set_num_threads(1)

def begin(stage, **more):
    with zero.Init(enabled=stage == 3):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    return dsrun.initialize(model=model, config={
        "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
        "zero_optimization": {"stage": stage}, **more})[0]

def loss_of(engine):
    return engine(torch.ones(2, 4)).square().mean()

def fails(function):
    try:
        function()
    except RuntimeError:
        return
    raise AssertionError("no error")

for stage in range(4):
    engine = begin(stage, gradient_accumulation_steps=2, bf16={"enabled": False})
    weight = engine.module[0].weight
    for _ in range(2):
        engine.backward(loss_of(engine))
        engine.step()
    utils.safe_get_full_fp32_param(weight), utils.safe_get_full_optimizer_state(weight, "exp_avg")
    with zero.GatheredParameters(weight, modifier_rank=0):
        weight.data.fill_(1.0)
    engine.save_checkpoint("saved")
    engine.load_checkpoint("saved")
    engine.offload_states()
    fails(weight.sum)
    engine.reload_states()
    handle = engine.module[1].register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError))
    fails(lambda: loss_of(engine))
    handle.remove()
    loss = loss_of(engine)
    engine.destroy()
    fails(loss.backward)
    del engine, weight, loss, handle

layers = [torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4)]
model = pipe.PipelineModule(layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss)
engine, *_ = dsrun.initialize(model=model, config={
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3,
    "optimizer": {"type": "SGD", "params": {"lr": 1e-2}}})
data = [(torch.ones(2, 4), torch.zeros(2, 4))] * 9
batches = iter(data)
engine.train_batch(batches), engine.eval_batch(batches), engine.train_batch(iter(data))
engine.destroy()
print("all is well", flush=True)

engine = begin(0)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
memory = libc.malloc(ctypes.c_size_t(64))
tensor = torch.frombuffer((ctypes.c_float * 16).from_address(memory), dtype=torch.float32).view(4, 4)
libc.free(ctypes.c_void_p(memory))
print("MARK", file=sys.stderr, flush=True)
engine.native.set_tensor("param", "0.weight", "", False, tensor)
dsrun.comm.barrier()
os._exit(0)  # what ends the process is not the extension's
""".replace("MARK", MARK)


def find_errors(text):
    """Returns memcheck's reports with a frame of the extension: of its library, or of a function in namespace ds."""
    reports = re.split(r"^==\d+== *$", text, flags=re.MULTILINE)
    return [report for report in reports
            if re.search(r"Invalid|Mismatched|overlap", report) and re.search(r"/_native\.|: ds::", report)]


def run_rank(rank, port, options, folder):
    """Starts the program as one of two ranks."""
    package = os.environ.get("PYTHONPATH", options.bin.parent / "python")
    report = open(os.path.join(folder, f"{rank}.txt"), "w")
    return subprocess.Popen(
        ["valgrind", "--undef-value-errors=no", "--leak-check=no", "--error-limit=no", "--num-callers=40",
         "--read-inline-info=no", options.python, "-c", PROGRAM], cwd=folder,
        env=dict(os.environ, PYTHONPATH=str(package), PYTHONMALLOC="malloc", OMP_NUM_THREADS="1",
                 CUDA_VISIBLE_DEVICES="", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                 MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=report, text=True)


def check(output, report):
    """Prints what is wrong with a rank; returns whether anything is."""
    before, mark, after = report.partition(MARK)
    if not mark or "all is well" not in output:
        print(output + report[-8000:])
        return True
    errors = find_errors(before)
    print(*errors, f"{len(errors)} errors of memory with a frame of the extension", sep="\n")
    if not find_errors(after):
        print(f"the wanted error is missing:\n{after[-4000:]}")
        return True
    return bool(errors)


def main():
    options = parse_options()
    if shutil.which("valgrind") is None:
        exit_without("valgrind", "valgrind is not installed")
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))  # no other job has this port
        ranks = [run_rank(rank, probe.getsockname()[1], options, folder) for rank in range(2)]
        outputs = [rank.communicate()[0] for rank in ranks]
        reports = [pathlib.Path(folder, f"{rank}.txt").read_text(errors="replace") for rank in range(2)]
    return int(any([check(*each) for each in zip(outputs, reports)]))


if __name__ == "__main__":
    sys.exit(main())
