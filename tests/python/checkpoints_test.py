#!/usr/bin/env python3
"""Checkpoints that do not fit an engine, and calls that differ between ranks, raise errors before anything changes.
Checkpoints of scripts and of `dsrun train` are read by both.

    checkpoints_test.py --bin DIR [--python PATH]      as trainers_test.py
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import safety_test
from trainer_cases import FOLDER
from trainers_test import parse_options

BEGIN = """
import os, pathlib
rank, folder = dsrun.comm.get_rank(), pathlib.Path(__file__).with_name("checkpoints")

def step(engine):
    engine.backward(loss_of(engine))
    engine.step()

def unchanged(engine, text, kind=ValueError, **options):
    before = engine._full_state_dict(), engine.global_steps, engine.get_lr()
    raises(text, lambda: engine.load_checkpoint(folder, **options), kind)
    after = engine._full_state_dict(), engine.global_steps, engine.get_lr()
    assert after[1:] == before[1:], (before, after)
    assert rank != 0 or all(torch.equal(before[0][name], after[0][name]) for name in before[0])
"""


class CheckpointsTest(unittest.TestCase):
    run_program = safety_test.SafetyTest.run_program

    def check(self, text, ranks=1):
        safety_test.SafetyTest.check(self, BEGIN + text, ranks)

    def test_ranks_that_name_different_checkpoints(self):
        self.check("""
for stage in (0, 3):
    engine = make(stage)
    for tag in "AB":
        step(engine)
        engine.save_checkpoint(folder, tag=tag)
    unchanged(engine, f"rank 0 loads {folder / 'A'}, and rank 1 loads {folder / 'B'}", tag="AB"[rank])
    unchanged(engine, f"rank 1 loads {folder / 'latest'}", tag="A" if rank == 0 else None)
    unchanged(engine, "with the same options", tag="A", load_module_only=rank == 0)
    folders = [folder, folder.with_name("others")]
    make(stage).save_checkpoint(folders[1], tag="A")
    raises(f"rank 1 loads {folders[1] / 'A'}", lambda: engine.load_checkpoint(folders[rank], tag="A"), ValueError)
    raises(f"rank 0 saves to {folder / 'r0'}, and rank 1 saves to {folder / 'r1'}",
           lambda: engine.save_checkpoint(folder, tag=f"r{rank}"), ValueError)
    raises("one folder", lambda: engine.save_checkpoint(folders[rank], tag="A"), ValueError)
    assert engine.load_checkpoint(folder, tag="A")[0] == str(folder / "A") and engine.global_steps == 1
    dsrun.comm.barrier()
""", ranks=2)

    def test_folders_that_are_the_same_by_another_path(self):
        self.check("""
engine = make(3)
engine.save_checkpoint(folder, tag="A")
other = folder.with_name("other")
if rank == 0:
    other.symlink_to(folder)
dsrun.comm.barrier()
assert engine.load_checkpoint(other if rank == 1 else folder)[0] is not None
""", ranks=2)

    def test_names_that_are_no_tags(self):
        self.check("""
engine = make(1)
engine.save_checkpoint(folder, tag="good")
for tag in ("", " ", ".", "..", "a/b", "/a", "latest", "a ", "a\\nb", "a\\0b"):
    raises(f"tag={tag!r}", lambda: engine.save_checkpoint(folder, tag=tag), ValueError)
    raises(f"tag={tag!r}", lambda: engine.load_checkpoint(folder, tag=tag), ValueError)
assert sorted(os.listdir(folder)) == ["good", "latest"] and engine.load_checkpoint(folder)[0] == f"{folder}/good"
(folder / "latest").write_text("..")
raises("is damaged", lambda: engine.load_checkpoint(folder))
""")

    def test_folders_that_are_not_there(self):
        self.check("""
engine = make(2)
engine.save_checkpoint(folder, tag="first")
raises(f"there is no checkpoint {folder / 'second'}; the tags in {folder} are first",
       lambda: engine.load_checkpoint(folder, tag="second"), FileNotFoundError)
os.makedirs(folder / "empty", exist_ok=True)
raises("it has no manifest.json", lambda: engine.load_checkpoint(folder, tag="empty"), FileNotFoundError)
for path, kind in ((__file__, (NotADirectoryError, FileExistsError)), ("/proc/none", FileNotFoundError)):
    raises(f"save_checkpoint cannot make the folder {path}/first", lambda: engine.save_checkpoint(path, tag="first"),
           kind if rank == 0 else OSError)
assert engine.load_checkpoint(folder)[0] == str(folder / "first")
""", ranks=2)

    def test_schedules_of_another_kind(self):
        self.check("""
schedules = torch.optim.lr_scheduler
def begin(*makers, **more):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    made = [maker(optimizer) for maker in makers]
    if len(made) > 1:
        made = [schedules.SequentialLR(optimizer, made, milestones=[2, 4][:len(made) - 1])]
    return dsrun.initialize(model=model, optimizer=optimizer, lr_scheduler=made[0] if made else None,
                            config={"train_micro_batch_size_per_gpu": 2, **more})[0]
halves = lambda optimizer: schedules.StepLR(optimizer, 1, 0.5)
cosine = lambda optimizer: schedules.CosineAnnealingLR(optimizer, 5)
warm = {"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1.0, "warmup_num_steps": 9}}}
def save(*makers, **more):
    engine = begin(*makers, **more)
    step(engine)
    engine.save_checkpoint(folder, tag="saved")
    return engine
save(halves)
unchanged(begin(cosine), "saved has a StepLR, and the engine a CosineAnnealingLR: ")
unchanged(begin(halves, halves), "a StepLR, and the engine a SequentialLR")
unchanged(make(0, **warm), "a StepLR, and the engine the schedule of the config")
engine = begin(halves)
engine.load_checkpoint(folder)
assert engine.get_lr() == [0.5] and engine.lr_scheduler.last_epoch == 1
engine = begin(cosine)
engine.load_checkpoint(folder, load_lr_scheduler_states=False)
assert engine.lr_scheduler.last_epoch == 0 and engine.global_steps == 1
save(halves, halves)
unchanged(begin(halves, cosine), "a state of SequentialLR without its _schedulers.T_max")
unchanged(begin(halves, halves, halves), "a state of SequentialLR without its _schedulers")
begin(halves, halves).load_checkpoint(folder)
save(**warm)
unchanged(begin(halves), "has the schedule of the config, and the engine a StepLR")
save()
unchanged(begin(halves), "has no schedule, and the engine a StepLR")
""")

    def test_rates_of_other_ratios(self):
        self.check("""
def begin(*rates):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    groups = [{"params": part.parameters(), "lr": rate} for part, rate in zip(model, rates)]
    return dsrun.initialize(model=model, optimizer=torch.optim.SGD(groups),
                            config={"train_micro_batch_size_per_gpu": 2})[0]
engine = begin(0.1, 0.2)
step(engine)
engine.save_checkpoint(folder)
engine = begin(0.1, 0.1)
engine.load_checkpoint(folder)
step(engine)
assert engine.get_lr() == engine.native.rates == [0.1, 0.2]
engine = begin(0.1, 0.1)
engine.load_checkpoint(folder, load_optimizer_states=False)
step(engine)
engine = begin(0.4, 0.8)
engine.load_checkpoint(folder)
step(engine)
assert engine.get_lr() == [0.1, 0.2]
""")

    def test_extra_state_of_other_modules(self):
        self.check("""
class Counting(torch.nn.Linear):
    count = 0
    def get_extra_state(self):
        return self.count
    def set_extra_state(self, count):
        self.count = count
def begin(kind, stage):
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
              "zero_optimization": {"stage": stage}}
    return dsrun.initialize(model=torch.nn.Sequential(kind(4, 4)), config=config)[0]
for stage in (0, 3):
    engine = begin(Counting, stage)
    engine.module[0].count = 3
    step(engine)
    engine.save_checkpoint(folder)
    unchanged(begin(torch.nn.Linear, stage), "(get_extra_state) of other parts: ['0'], []", KeyError)
    begin(torch.nn.Linear, stage).load_checkpoint(folder, load_module_strict=False)
    engine = begin(Counting, stage)
    engine.load_checkpoint(folder)
    assert engine.module[0].count == 3
""", ranks=2)

    def test_parameters_that_are_not_the_engines(self):
        self.check("""
engine = make(1)
engine.save_checkpoint(folder)
engine.module.load_state_dict({name: value.clone() for name, value in engine.module.state_dict().items()}, assign=True)
raises("is not the engine's", lambda: engine.load_checkpoint(folder))
""")

    def test_weights_that_one_rank_cannot_read(self):
        self.check("""
from dsrun import _native, engine_checkpoints
engine = make(3)
engine.save_checkpoint(folder)
def read(path):
    raise OSError("of the disk")
if rank == 1:
    engine_checkpoints._native = type("Native", (), {"read_weights": staticmethod(read),
                                                     "broadcast_text": staticmethod(_native.broadcast_text)})
raises("of the disk", lambda: engine.load_checkpoint(folder, custom_load_fn=lambda src, dst: None),
       OSError if rank == 1 else RuntimeError)
engine.load_checkpoint(folder)
""", ranks=2)

LENGTH = 16
CONFIG = {
    "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},
    "gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-2, "warmup_num_steps": 5,
                                                 "warmup_type": "linear"}}}


class RoundTripTest(unittest.TestCase):
    """A run of `dsrun train`, and a script that trains a part of its steps on the same samples."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_python("-c", "import random, torch, models\ntorch.manual_seed(1)\n"
                        "models.make_model('llama').save_pretrained('model')\nrandom.seed(1)\n"
                        "ids = (random.randrange(64) for _ in range(900))\n"
                        "open('tokens.bin', 'wb').write(b''.join(id.to_bytes(2, 'little') for id in ids))")
        (self.folder / "ds.json").write_text(json.dumps(CONFIG))

    def run_python(self, *words):
        package = os.environ.get("PYTHONPATH", OPTIONS.bin.parent / "python")
        return self.run_command(OPTIONS.python, *words, PYTHONPATH=f"{package}:{FOLDER}", HF_HUB_OFFLINE="1")

    def run_dsrun(self, *words):
        return self.run_command(OPTIONS.bin / "dsrun", *words)

    def run_command(self, *words, **environment):
        result = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300,
                                env=dict(os.environ, OMP_NUM_THREADS="1", **environment))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout + result.stderr

    def train(self, run, steps, *more):
        self.run_dsrun("-n", "2", "--device", "cpu", "--run_dir", run, "train", "--model", "model", "--data",
                       "tokens.bin", "--deepspeed_config", "ds.json", "--seq_len", str(LENGTH),
                       "--no_shuffle", "--save_every", "2", "--steps", str(steps), *more)

    def losses(self, run):
        lines = map(json.loads, (self.folder / run / "metrics.jsonl").read_text().splitlines())
        return {line["step"]: line["loss"] for line in lines if "loss" in line}

    def test_each_goes_on_where_the_other_stopped(self):
        self.train("whole", 6)
        expected = self.losses("whole")
        self.train("parts", 2)
        # On one rank, at stage 1; "checkpoints" is a tag in the folder of the run.
        output = self.run_python(FOLDER / "check_round_trip.py", "model", "tokens.bin", "ds.json", "1", str(LENGTH),
                                 "parts", "2")
        self.assertIn("parts/checkpoints was written by dsrank ", output)
        found = {int(line.split()[1]): float(line.split()[2]) for line in output.splitlines()
                 if line.startswith("loss ")}
        self.assertEqual(sorted(found), [3, 4])
        output = self.run_dsrun("resume", "parts", "--steps", "6")
        self.assertIn("step-4, written by dsrun python, has no position in the data: this run goes on with its "
                      "sample 17, as 16 samples have been seen", output)
        self.assertNotIn("learning rate", output)
        found |= {step: loss for step, loss in self.losses("parts").items() if step > 4}
        self.assertEqual(sorted(found), [3, 4, 5, 6])
        for step, loss in found.items():
            self.assertAlmostEqual(loss, expected[step], delta=1e-6 * expected[step], msg=f"step {step}: {found}")

    def test_tools_find_the_checkpoints_of_tags(self):
        self.run_python("-c", "import torch, dsrun\n"
                        "engine = dsrun.initialize(model=torch.nn.Linear(4, 4), config={'train_batch_size': 1})[0]\n"
                        "engine.save_checkpoint('saved', tag='a')\nengine.save_checkpoint('saved', tag='b')")
        lines = self.run_dsrun("checkpoint", "list", "saved").splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["a/step-0", "b/step-0"])
        self.assertEqual([line.endswith("  latest") for line in lines], [False, True])
        self.assertIn("a/step-0: good: 2 tensors", self.run_dsrun("checkpoint", "verify", "saved"))
        self.assertIn("step-0: good", self.run_dsrun("checkpoint", "verify", "saved/b"))


if __name__ == "__main__":
    OPTIONS = safety_test.OPTIONS = parse_options()
    sys.exit(not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful())
