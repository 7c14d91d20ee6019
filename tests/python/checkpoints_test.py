#!/usr/bin/env python3
"""Checkpoints that do not fit an engine, and calls that differ between ranks, raise errors before anything changes.

    checkpoints_test.py --bin DIR [--python PATH]      as trainers_test.py
"""

import sys
import unittest

import safety_test
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
unchanged(begin(0.1, 0.1), "groups with the rates [0.1, 0.2], and the engine keeps the ratios of the optimizer's")
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


if __name__ == "__main__":
    safety_test.OPTIONS = parse_options()
    sys.exit(not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful())
