#!/usr/bin/env python3
"""Ends of Python runs that are not the script's own: signals, a killed rank, an exception on one rank.

    stop_test.py --bin DIR [--python PATH]      as trainers_test.py
"""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from trainers_test import parse_options

SCRIPT = """
import atexit, os, select, signal, sys, time

def wait_for_rank_0():
    if "pid" in globals():
        select.select([os.pidfd_open(pid)], [], [])

if sys.argv[1] == "consequence":
    atexit.register(wait_for_rank_0)  # called after dsrun's, which leaves the ranks
import torch, dsrun
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
engine, *_ = dsrun.initialize(model=model, config={
    "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, **({} if sys.argv[1] != "plain" else {
        name: {"enabled": True, "output_path": "monitors", "job_name": name} for name in ("csv_monitor", "tensorboard")})})
rank, case, generation = dsrun.comm.get_rank(), sys.argv[1], int(os.environ["DSRUN_GENERATION"])
pids = torch.tensor([os.getpid()])
dsrun.comm.broadcast(pids, 0)
rank_0_pid = pids.item()
if case == "restarts":
    path, state = engine.load_checkpoint("checkpoints")
    print("begins after", engine.global_steps, state.get("note"), flush=True)
def evaluate():
    handle = model[0].register_forward_hook(lambda *_: time.sleep(0.05))
    with torch.no_grad():
        engine.eval()(torch.ones(1, 4))
    engine.train()
    handle.remove()

begin = time.monotonic()
while engine.global_steps < 4 or case in ("SIGINT", "SIGTERM"):
    if case == "plain" and engine.global_steps == 2:
        evaluate()
    engine.backward(engine(torch.ones(1, 4)).sum())
    before, begin = begin, time.monotonic()
    engine.step()
    if case == "plain" and rank == 0:
        print("seconds", time.monotonic() - before, flush=True)  # with the step before
    if case == "restarts" and engine.global_steps == 2 and generation == 0:
        engine.save_checkpoint("checkpoints", client_state={"note": "saved"})
    if engine.global_steps == 3 and generation == 0:
        if case in ("exception", "consequence") and rank == 1:
            pid = rank_0_pid
            raise KeyError("no such sample")
        if case in ("killed", "restarts") and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        print("under way", flush=True)
print("ends after", engine.global_steps, flush=True)
"""


class StopTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "script.py").write_text(SCRIPT)

    def start(self, case, *flags):
        package = os.environ.get("PYTHONPATH", OPTIONS.bin.parent / "python")
        return subprocess.Popen(
            [OPTIONS.bin / "dsrun", "-n", "2", "--device", "cpu", "--run_dir", self.path / "run", *flags,
             "run", "--", OPTIONS.python, "script.py", case],
            cwd=self.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=dict(os.environ, PYTHONPATH=str(package), OMP_NUM_THREADS="1"))

    def end(self, process):
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def stop(self, number):
        process = self.start(number.name)
        for line in process.stdout:
            if "under way" in line:
                process.send_signal(number)
                break
        return self.end(process)

    def test_ctrl_c_ends_the_ranks(self):
        status, output = self.stop(signal.SIGINT)
        self.assertEqual(status, 128 + signal.SIGINT, output)

    def test_sigterm_ends_the_ranks(self):
        status, output = self.stop(signal.SIGTERM)
        self.assertEqual(status, 128 + signal.SIGTERM, output)

    def test_an_exception_of_one_rank_is_the_verdict(self):
        self.check_exception("exception")

    def test_its_consequence_that_ends_first_is_not_the_verdict(self):
        self.check_exception("consequence")

    def check_exception(self, case):
        status, output = self.end(self.start(case))
        self.assertEqual(status, 1, output)
        self.assertIn("the job failed: KeyError: 'no such sample' (", output)
        self.assertIn("rank 1 on localhost", output)
        self.assertIn("last step  3", output)
        self.assertIn('| Traceback (most recent call last):', output)
        self.assertNotIn("ends after", output)

    def test_a_killed_rank_is_the_verdict(self):
        status, output = self.end(self.start("killed"))
        self.assertEqual(status, 128 + signal.SIGKILL, output)
        self.assertIn("rank 1 on localhost", output)
        self.assertNotIn("ends after", output)

    def test_a_restart_continues_from_the_newest_checkpoint(self):
        status, output = self.end(self.start("restarts", "--max_restarts", "1"))
        self.assertEqual(status, 0, output)
        self.assertIn("begins after 0 None", output)
        self.assertIn("begins after 2 saved", output)
        self.assertIn("ends after 4", output)

    def test_the_run_directory_has_the_steps(self):
        status, output = self.end(self.start("plain"))
        self.assertEqual(status, 0, output)
        steps = [json.loads(line) for line in (self.path / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([step["step"] for step in steps], [1, 2, 3, 4])
        self.assertEqual([step["samples"] for step in steps], [2] * 4)
        self.assertTrue(all(step["loss"] is not None and step["grad_norm"] > 0 for step in steps))
        self.assertTrue(all(0 <= step["data_seconds"] < step["step_seconds"] for step in steps))
        self.assertEqual([step.get("eval_seconds", 0) >= 0.05 for step in steps], [False, False, True, False])
        most = [float(line.split()[-1]) for line in output.splitlines() if "seconds" in line.split()]
        self.assertLessEqual(steps[2]["step_seconds"] + steps[2]["eval_seconds"], most[2], output)
        self.assertIn("all_gather", steps[1]["communicated"])
        self.assertIn("step 4  loss", output)
        self.check_monitors(steps)

    def check_monitors(self, steps):
        expected = [(step["samples"] * step["step"], step["loss"], step["lr"]) for step in steps]
        found = [self.read_csv("train_loss"), self.read_csv("lr")]
        self.assertEqual([sample for sample, _ in found[0]], [sample for sample, _, _ in expected])
        events = next((self.path / "monitors/tensorboard").glob("events.out.tfevents.*")).read_bytes()
        for column, name in enumerate(("train_loss", "lr")):
            # Of an event's message: the tag, then field 2, the value in fp32.
            shown = [struct.unpack("<f", each)[0] for each in
                     re.findall(rb"Train/Samples/%s\x15(.{4})" % name.encode(), events, re.DOTALL)]
            for values in ([value for _, value in found[column]], shown):
                self.assertEqual(len(values), len(expected))
                for value, row in zip(values, expected):
                    self.assertAlmostEqual(value, row[1 + column], delta=1e-6 * abs(row[1 + column]))

    def read_csv(self, name):
        rows = (self.path / f"monitors/csv_monitor/Train_Samples_{name}.csv").read_text().splitlines()
        self.assertEqual(rows[0], f"step,{name}")
        return [(int(sample), float(value)) for sample, value in (row.split(",") for row in rows[1:])]


if __name__ == "__main__":
    OPTIONS = parse_options()
    unittest.main(argv=sys.argv[:1])
