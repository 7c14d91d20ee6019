"""Checks that other threads of Python run while a rank waits for another one.

    dsrun -n 2 check_waits.py      hangs where a wait holds the interpreter's lock
"""

import os
import pathlib
import socket
import sys
import threading
import time

import torch

import dsrun

PACKAGE = str(pathlib.Path(dsrun.__file__).parent)
RANK = int(os.environ["RANK"])
MAIN = threading.get_ident()
HANDOVERS = 200  # of the interpreter's lock to the waiting thread, which takes it if it can


def connect():
    """The two ends of a connection between the ranks."""
    address = f"\0dsrun-check-waits/{os.environ['MASTER_PORT']}/{os.environ['DSRUN_JOB_ID']}"
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if RANK == 0:
        one.bind(address)
        one.listen(1)
    dsrun.comm.barrier()
    if RANK == 0:
        return one.accept()[0]
    one.connect(address)
    return one


def is_in_package():
    return sys._current_frames()[MAIN].f_code.co_filename.startswith(PACKAGE)


def call_apart(name, call):
    """Makes the call on both ranks: on rank 1 when a thread of rank 0 has run while that one waits."""
    if RANK == 1:
        CONNECTION.recv(1)
        return call()
    is_over = threading.Event()
    has_waited = []

    def run_beside():
        while not is_in_package() and not is_over.is_set():
            time.sleep(0)
        for _ in range(HANDOVERS):
            time.sleep(0)
        has_waited.append(not is_over.is_set())
        CONNECTION.send(b"x")

    thread = threading.Thread(target=run_beside)
    thread.start()
    result = call()
    is_over.set()
    thread.join()
    assert has_waited == [True], f"{name} has not waited for rank 1"
    return result


CONNECTION = connect()
call_apart("barrier", dsrun.comm.barrier)
call_apart("broadcast", lambda: dsrun.comm.broadcast(torch.ones(3), 1))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
engine, *_ = call_apart("initialize", lambda: dsrun.initialize(model=model, config={
    "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}))
loss = call_apart("forward", lambda: engine(torch.ones(1, 4)).sum())
call_apart("backward", lambda: engine.backward(loss))
call_apart("step", engine.step)
call_apart("save_checkpoint", lambda: engine.save_checkpoint("checkpoints"))
call_apart("load_checkpoint", lambda: engine.load_checkpoint("checkpoints"))
if RANK == 0:
    print("all checks passed")
