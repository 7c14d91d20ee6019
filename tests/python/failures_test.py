#!/usr/bin/env python3
"""Failures of training scripts on two ranks: the job ends, with the exception and its place in the verdict.

    failures_test.py --bin DIR [--python PATH]      as trainers_test.py
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from trainers_test import parse_options

TIME_LIMIT = 300  # only against hanging

BEGIN = """
import os, signal, torch, dsrun
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
layers = [torch.nn.Linear(4, 4) for _ in range(3)]
engine, *_ = dsrun.initialize(model=torch.nn.Sequential(*layers), config={
    "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}})

def step(inputs=torch.ones(1, 4)):
    engine.backward(engine(inputs).sum())
    engine.step()

step()
"""
FAILING = """
class Failing(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise ArithmeticError("of the gradient")  # here

def fail():
    return layers[1].register_forward_hook(lambda module, inputs, output: Failing.apply(output))
"""
BACKWARD = BEGIN + FAILING + """
if rank == 1:
    fail()
while True:
    step()
"""
FORWARD = BEGIN + """
def raise_in_forward(module, inputs):
    raise LookupError("of the forward")  # here

if rank == 1:  # rank 0 waits for the weights of layers[2] then
    layers[1].register_forward_pre_hook(raise_in_forward)
while True:
    step()
"""
RECOVERED = BEGIN + FAILING + """
engine.save_checkpoint("checkpoint")
step()
expected = engine(torch.ones(1, 4)).sum().item()
hook = fail()
for attempt in range(2):
    try:
        step()
    except (ArithmeticError, RuntimeError) as error:
        print(type(error).__name__, error, flush=True)
hook.remove()
engine.load_checkpoint("checkpoint")
step()
print("continued", engine(torch.ones(1, 4)).sum().item() == expected, flush=True)
"""
LOADER = BEGIN + """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        if rank == 0 and index == 3:
            raise OSError("sample 3 cannot be read")  # here
        return torch.ones(4)

if __name__ == "__main__":
    while True:
        for inputs in torch.utils.data.DataLoader(Data(), num_workers={workers}):
            step(inputs)
"""
KILLED = BEGIN + """
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    step()
"""
EXIT = BEGIN + """
if rank == 1:
    raise SystemExit(5)
while True:
    step()
"""
PIPELINE = """
import os, sys, torch, dsrun
from dsrun.pipe import PipelineModule
torch.set_num_threads(1)
rank, calls = int(os.environ["RANK"]), 0

def loss_of(outputs, labels):
    global calls
    calls += 1
    if calls == 6:
        raise ArithmeticError("of the second step")
    return outputs.square().mean()

def make():
    model = PipelineModule([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)], num_stages=2, loss_fn=loss_of)
    return dsrun.initialize(model=model, config={
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})[0]

def data():
    while True:
        yield torch.ones(1, 4), torch.ones(1)

engine, batches = make(), data()
if "uncaught" in sys.argv:
    while True:
        engine.train_batch(batches)
for call in (lambda: engine.train_batch(batches), lambda: engine.train_batch(batches), make, dsrun.comm.barrier):
    try:
        call()
    except Exception as error:
        print("rank", rank, "has", type(error).__name__, str(error).partition(";")[0], flush=True)
"""


class FailuresTest(unittest.TestCase):
    def run_job(self, text, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "train.py")
            script.write_text(text)
            package = os.environ.get("PYTHONPATH", OPTIONS.bin.parent / "python")
            return subprocess.run(
                [OPTIONS.bin / "dsrun", "-n", "2", "--run_dir", os.path.join(folder, "run"), "--python",
                 OPTIONS.python, str(script), *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, timeout=TIME_LIMIT, check=False,
                env=dict(os.environ, PYTHONPATH=str(package), OMP_NUM_THREADS="1"))

    def check(self, text, *expected, arguments=()):
        result = self.run_job(text, *arguments)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        for part in expected:
            self.assertIn(part, result.stdout)
        return result

    def place(self, text):
        return f"train.py:{text[:text.index('# here')].count(chr(10)) + 1}"

    def test_an_exception_in_backward_is_the_verdict(self):
        self.check(BACKWARD, "ArithmeticError: of the gradient", self.place(BACKWARD), "last step  ")

    def test_an_exception_in_forward_is_the_verdict(self):
        result = self.check(FORWARD, "the job failed: LookupError: of the forward", self.place(FORWARD), "last step  1",
                            "rank 1 on localhost", "| Traceback (most recent call last):")
        self.assertEqual(result.returncode, 1, result.stdout)

    def test_after_an_exception_in_backward_a_checkpoint_is_needed_to_go_on(self):
        result = self.run_job(RECOVERED)
        self.assertEqual(result.returncode, 0, result.stdout)
        for part in ("ArithmeticError of the gradient", "RuntimeError a backward pass of this step has thrown, so its "
                     "gradients are incomplete: load a checkpoint", "continued True"):
            self.assertIn(part, result.stdout)

    def test_an_exception_in_a_pipeline_step_ends_all_that_its_ranks_do_together(self):
        result = self.run_job(PIPELINE)
        self.assertEqual(result.returncode, 0, result.stdout)
        reason = "an exception has ended its pipeline step within the micro-batches: ArithmeticError: of the second step"
        self.assertEqual(result.stdout.count("rank 1 has ArithmeticError of the second step"), 1, result.stdout)
        self.assertEqual(result.stdout.count(f"rank 1 has given up: {reason}"), 5, result.stdout)

    def test_an_exception_in_a_pipeline_step_is_the_verdict(self):
        self.check(PIPELINE, "the job failed: ArithmeticError: of the second step", "last step  1",
                   arguments=["uncaught"])

    def test_an_exception_of_the_data_set_is_the_verdict(self):
        text = LOADER.replace("{workers}", "0")
        self.check(text, "OSError: sample 3 cannot be read", self.place(text))

    def test_an_exception_in_a_worker_of_the_loader_is_the_verdict(self):
        self.check(LOADER.replace("{workers}", "1"), "OSError: Caught OSError in DataLoader worker process 0",
                   "sample 3 cannot be read")

    def test_a_killed_rank_ends_the_job(self):
        self.check(KILLED, "rank 1", "SIGKILL")

    def test_a_rank_that_exits_ends_the_job_with_its_status(self):
        result = self.check(EXIT, "rank 1")
        self.assertEqual(result.returncode, 5, result.stdout)


if __name__ == "__main__":
    OPTIONS = parse_options()
    unittest.main(argv=sys.argv[:1])
