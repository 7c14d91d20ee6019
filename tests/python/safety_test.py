#!/usr/bin/env python3
"""Mistakes that scripts make with engines raise errors that name the mistake, and end no process.

    safety_test.py --bin DIR [--python PATH]      as trainers_test.py
"""

import os
import subprocess
import sys
import tempfile
import unittest

from trainers_test import parse_options

PROGRAM = """
import gc, logging, os, torch, dsrun
from dsrun import utils, zero
torch.manual_seed(1)
UNUSED = __file__ + ".unused"  # a folder that no program makes

def make(stage, **more):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
              "zero_optimization": {"stage": stage}, **more}
    return dsrun.initialize(model=model, config=config)[0]

def loss_of(engine):
    return engine(torch.ones(2, 4)).square().mean()

def collect_messages():
    # The list to which the messages of the package are added from now on.
    class Collector(logging.Handler):
        def emit(self, record):
            said.append(record.getMessage())
    said = []
    utils.logger.addHandler(Collector())
    return said

def raises(text, function, kind=RuntimeError):
    try:
        function()
    except kind as error:
        assert text in str(error), f"{error!r} does not say {text!r}"
        return
    raise AssertionError(f"no {kind.__name__} with {text!r}")
"""


class SafetyTest(unittest.TestCase):
    def run_program(self, text, ranks=1, python=(), timeout=120):
        package = os.environ.get("PYTHONPATH", OPTIONS.bin.parent / "python")
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.py")
            with open(script, "w") as file:
                file.write(PROGRAM + text)
            command = [OPTIONS.python, *python, script]
            if ranks > 1:
                command = [OPTIONS.bin / "dsrun", "-n", str(ranks), "--device", "cpu", "--run_dir",
                           os.path.join(folder, "run"), "run", "--", *command]
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout,
                                    env=dict(os.environ, PYTHONPATH=str(package), OMP_NUM_THREADS="1"))
        self.status = result.returncode
        return result.stdout + result.stderr

    def check(self, text, ranks=1):
        output = self.run_program(text + "\nassert not os.path.exists(UNUSED)\nprint('all is', 'well')", ranks)
        self.assertEqual(self.status, 0, output)
        self.assertIn("all is well", output)

    def test_offloaded_parameters_say_so(self):
        self.check("""
for stage in range(3):
    engine = make(stage)
    weight, state = engine.module[0].weight, engine.module.state_dict()
    engine.backward(loss_of(engine))
    engine.step()
    before = weight.detach().clone()
    engine.offload_states()
    for read in (weight.sum, weight.tolist, lambda: print(weight), lambda: torch.save(weight, "/dev/null")):
        raises("parameter 0.weight has been moved to host memory by offload_states: call reload_states", read)
    raises("offload_states has moved to host memory", state["0.weight"].sum)
    engine.reload_states()
    assert torch.equal(weight, before) and torch.equal(state["0.weight"], before)
    engine.offload_states()
    loss_of(engine)  # brings them back
    assert torch.equal(weight, before)
    engine.offload_states(include=["lp_params"])
    engine.destroy()
    assert torch.equal(weight, before), "a module without its engine keeps its values"
""")

    def test_one_rank_has_parameters_elsewhere_too(self):
        self.check("""
away = {"stage": 3, "offload_optimizer": {"device": "cpu"}}
engine = make(0, zero_optimization=away)
weight = engine.module[0].weight
assert weight.ds_status is zero.ZeroParamStatus.NOT_AVAILABLE, weight.ds_status
raises("sharded", lambda: weight + 1)
with zero.GatheredParameters([weight]):
    assert weight.ds_status is zero.ZeroParamStatus.AVAILABLE
    value = weight.detach().clone()
assert weight.ds_status is zero.ZeroParamStatus.NOT_AVAILABLE
config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
second = dsrun.initialize(model=engine.module, config=config)[0]  # takes the module over
assert torch.equal(second.module[0].weight, value)
model = torch.nn.Sequential(torch.nn.Embedding(10, 4, max_norm=1.0))
raises("0 has max_norm=1.0", lambda: dsrun.initialize(model=model, config={
    **config, "zero_optimization": away}), NotImplementedError)
""")

    def test_an_interrupted_forward_leaves_the_engine_usable(self):
        self.check("""
class Interrupted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        self.stops = False
    def forward(self, x):
        x = self.inner[0](x)
        if self.stops:
            raise KeyboardInterrupt
        return self.inner[1](x)

torch.manual_seed(0)
model = Interrupted()
engine = dsrun.initialize(model=model, config={
    "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    "zero_optimization": {"stage": 3}})[0]
before = loss_of(engine)
engine.backward(before)
engine.step()
model.stops = True
raises("", lambda: loss_of(engine), KeyboardInterrupt)
model.stops = False
with zero.GatheredParameters(list(model.parameters()), modifier_rank=0):  # no pass is in progress
    pass
after = loss_of(engine)
engine.backward(after)
engine.step()
assert after < before and engine.global_samples == 4 * dsrun.comm.get_world_size(), engine.global_samples
""", ranks=2)

    def test_parameters_of_later_stay_with_the_module(self):
        self.check("""
engine = make(1)
module = engine.module
module.scale = torch.nn.Parameter(torch.ones(1))
new = module[0].weight = torch.nn.Parameter(torch.zeros(4, 4))
raises("is not the engine's", lambda: loss_of(engine))
engine.destroy()
assert module[0].weight is new and "scale" in dict(module.named_parameters())
again = dsrun.initialize(model=module, config=engine.config)[0]
assert again.module[0].weight is new and len(list(again.module.parameters())) == 5
""")

    def test_checkpoints_have_what_a_module_has_assigned(self):
        self.check("""
import tempfile
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = torch.nn.Linear(4, 1), 0
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("later", None)
    def forward(self, x):
        self.mean, self.calls = 0.5 * self.mean + x.mean(0).detach(), self.calls + 1
        return self.inner(x)
    def get_extra_state(self):
        return self.calls
    def set_extra_state(self, state):
        self.calls = state
def train():
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    engine = dsrun.initialize(model=Model(), config=config)[0]
    for _ in range(3):
        engine.backward(loss_of(engine))
        engine.step()
    return engine
with tempfile.TemporaryDirectory() as folder:
    engine = train()
    engine.save_checkpoint(folder)
    loss_of(engine)
    engine.load_checkpoint(folder)
    assert engine.module.mean.tolist() == [1.75] * 4 and engine.module.calls == 3
    engine.module.later = torch.ones(2)
    engine.save_16bit_model(folder)
    saved = torch.load(folder + "/pytorch_model.bin")
    assert saved["mean"].tolist() == [1.75] * 4 and saved["later"].tolist() == [1, 1]
    torch.save(list(engine.module.parameters()), folder + "/list.pt")
    assert torch.equal(torch.load(folder + "/list.pt", weights_only=False)[0], engine.module.inner.weight)
""")

    def test_an_export_has_every_name_of_what_is_shared(self):
        self.check("""
class Masked(torch.nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.register_buffer("mask", mask)
    def forward(self, x):
        return self.inner(x) * self.mask
def build():
    mask, norm = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.nn.BatchNorm1d(4)
    return torch.nn.Sequential(Masked(mask), norm, Masked(mask), norm, torch.nn.Linear(4, 1))
config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
for stage in (1, 3):
    engine = dsrun.initialize(model=build(), config={**config, "zero_optimization": {"stage": stage}})[0]
    loss_of(engine).backward()
    engine.step()
    state = engine._zero3_consolidated_16bit_state_dict()
    expected = engine.module.state_dict()
    if dsrun.comm.get_rank() == 0:
        assert state.keys() == expected.keys(), state.keys() ^ expected.keys()
        assert torch.equal(state["3.running_mean"], engine.module[1].running_mean)
        build().load_state_dict(state)
""", ranks=2)

    def test_a_function_that_loads_may_call_the_module(self):
        self.check("""
import tempfile
engine, losses = make(3), []
def load(src, dst):
    dst[0].weight.copy_(src["0.weight"])
    assert dst[0].weight.ds_status is zero.ZeroParamStatus.AVAILABLE
    losses.append(dst(torch.ones(2, 4)).square().mean().item())
with tempfile.TemporaryDirectory() as folder:
    engine.save_checkpoint(folder)
    before = loss_of(engine).item()
    with zero.GatheredParameters(engine.module[0].weight, modifier_rank=0):
        engine.module[0].weight.data.zero_()
    engine.load_checkpoint(folder, custom_load_fn=load)
    assert losses == [before] and loss_of(engine).item() == before
""")

    def test_a_load_that_does_not_fit_changes_nothing(self):
        self.check("""
import tempfile
def begin(*layers):
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}
    return dsrun.initialize(model=torch.nn.Sequential(*layers), config=config)[0]
first = lambda: torch.nn.Linear(4, 4)
with tempfile.TemporaryDirectory() as folder:
    engine = begin(first(), first())
    engine.backward(loss_of(engine))
    engine.step()
    engine.save_checkpoint(folder)
    for text, layers in (("has no tensor '2.weight'", (first(), first(), first())),
                         ("holds tensor '1.", (first(),)), ("its shape is", (first(), torch.nn.Linear(4, 2)))):
        other = begin(*layers)
        before = [parameter.detach().clone() for parameter in other.module.parameters()]
        raises(text, lambda: other.load_checkpoint(folder), (KeyError, ValueError))
        assert all(map(torch.equal, before, other.module.parameters())) and other.global_steps == 0
""")

    def test_what_would_not_be_trained_is_refused(self):
        self.check("""
config = {"train_micro_batch_size_per_gpu": 2}
model, scale = torch.nn.Linear(4, 4), torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([*model.parameters(), scale], lr=0.1)
raises("which would not be trained: make it a parameter of the model",
       lambda: dsrun.initialize(model=model, optimizer=optimizer, config=config), ValueError)
engine = make(0)
engine.backward(loss_of(engine))
raises("call engine.step()", engine.optimizer.step)
""")

    def test_a_gradient_within_gathered_parameters_is_an_error(self):
        self.check("""
engine = make(3)
engine.backward(loss_of(engine))
weight = engine.module[0].weight
with zero.GatheredParameters(weight):
    raises("within GatheredParameters", lambda: utils.safe_get_full_grad(weight))
assert utils.safe_get_full_grad(weight).abs().sum() > 0
""")

    def test_a_gradient_is_read_after_the_last_backward(self):
        self.check("""
for stage in (0, 2):
    engine = make(stage)
    engine.backward(loss_of(engine))
    utils.safe_get_full_grad(engine.module[0].weight)  # adds up the gradients of the ranks
    raises("read gradients after the step's last backward pass", lambda: engine.backward(loss_of(engine)))
    engine.step()
""", ranks=2)

    def test_a_module_without_trained_parameters_may_name_an_optimizer(self):
        self.check("""
model = torch.nn.Linear(4, 4).requires_grad_(False)
engine = dsrun.initialize(model=model, config={
    "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})[0]
assert engine.get_lr() == [0.1] and not loss_of(engine).requires_grad
""")

    def test_aliases_of_released_parameters_say_so(self):
        self.check("""
engine = make(3)
weight = engine.module[0].weight
raises("parameter 0.weight is sharded among the ranks", weight.sum)
with zero.GatheredParameters(weight):
    alias, copy = weight.detach(), weight.detach().clone()
raises("copy it (clone) while it holds them", alias.sum)
seen = []
engine.module[0].register_forward_pre_hook(lambda *_: seen.append(engine.module[0].weight.data))
loss = loss_of(engine)
raises("does not hold their values now", seen[0].sum)
engine.backward(loss)
engine.step()
with zero.GatheredParameters(weight):
    assert torch.equal(alias, weight) and not torch.equal(weight, copy)
engine.destroy()
raises("parameter 0.weight has no values any more", weight.sum)
raises("make the model again", lambda: dsrun.initialize(model=engine.module, config=engine.config))
""", ranks=2)

    def test_parameters_with_other_memory_say_so(self):
        self.check("""
text = "parameter 0.weight has been given other memory than the engine's"
convert = torch.nn.utils
for stage in (0, 2, 3):
    for change in (lambda w: setattr(w, "data", w.new_ones(4, 4)),
                   lambda w: convert.vector_to_parameters(torch.ones(16), [w])):
        engine = make(stage)
        weight = engine.module[0].weight
        change(weight)
        for call in (lambda: loss_of(engine), lambda: engine.save_checkpoint(UNUSED),
                     lambda: engine.save_16bit_model(UNUSED)):
            raises(text, call)
        with torch.no_grad():
            raises(text, lambda: loss_of(engine))
    engine = make(stage)
    weight = engine.module[0].weight
    engine.backward(loss_of(engine))
    weight.data = weight.new_ones(4, 4)
    raises(text, engine.step)
    engine = make(stage)
    weight = engine.module[0].weight
    engine.module[0].register_forward_pre_hook(lambda *_: setattr(weight, "data", weight.data.clamp(-0.1, 0.1)))
    raises(text, lambda: (engine.backward(loss_of(engine)), engine.step()))
engine = make(1)
engine.module.double()
raises("parameter 0.weight has been given", lambda: loss_of(engine))
engine = make(1)
engine.module.float()  # changes nothing
for _ in range(2):
    engine.offload_states()
    engine.save_checkpoint(__file__ + ".saved")
    engine.offload_states()
    engine.backward(loss_of(engine))
    engine.step()
""", ranks=2)

    def test_other_parameters_in_the_module_say_so(self):
        self.check("""
class Shift(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(4, 4))
    def forward(self, weight):
        return weight + self.shift

changes = {
    "0.weight": lambda model: setattr(model[0], "weight", torch.nn.Parameter(torch.ones(4, 4))),
    "0.weight ": lambda model: model.load_state_dict(torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)).state_dict(), assign=True),
    "1.weight": lambda model: model.__setitem__(1, torch.nn.Linear(4, 4)),
    "0.more": lambda model: model[0].register_parameter("more", torch.nn.Parameter(torch.zeros(1))),
    "0.parametrizations.weight.0.shift": lambda model: torch.nn.utils.parametrize.register_parametrization(
        model[0], "weight", Shift())}
for stage in (0, 3):
    for name, change in changes.items():
        engine = make(stage)
        change(engine.module)
        text = f"parameter {name.strip()} is not the engine's"
        for call in (lambda: loss_of(engine), engine.step, lambda: engine.save_checkpoint(UNUSED)):
            raises(text, call)
engine = make(1)
engine.module.append(torch.nn.Identity())
engine.module[1].weight = engine.module[0].weight  # the engine's, too
engine.backward(loss_of(engine))
engine.step()
with torch.no_grad():  # evaluates with other values
    torch.func.functional_call(engine.module, {"0.weight": torch.ones(4, 4)}, torch.ones(2, 4))
loss_of(engine)
""")

    def test_data_set_within_gathered_parameters_is_kept(self):
        self.check("""
rank = dsrun.comm.get_rank()
for stage in range(4):
    torch.manual_seed(1)
    engine = make(stage)
    torch.manual_seed(1)
    twin = make(stage)
    weight, bias = engine.module[0].weight, engine.module[0].bias
    with zero.GatheredParameters([weight, bias], modifier_rank=1):
        weight.data = torch.full((4, 4), float(rank))
        torch.nn.utils.vector_to_parameters(torch.full((4,), 2.0 + rank), [bias])
    with zero.GatheredParameters([twin.module[0].weight, twin.module[0].bias], modifier_rank=0):
        twin.module[0].weight.data.fill_(1.0)
        twin.module[0].bias.data.fill_(3.0)
    for _ in range(2):
        losses = [loss_of(one) for one in (engine, twin)]
        assert losses[0].item() == losses[1].item()
        for one, loss in zip((engine, twin), losses):
            one.backward(loss)
            one.step()
    with zero.GatheredParameters([weight]):
        before = weight.detach().clone()
        weight.data = torch.zeros(4, 4)
    def change(value):
        with zero.GatheredParameters([weight], modifier_rank=0):
            if rank == 0:
                weight.data = value
    text = "parameter 0.weight has got another shape or dtype within GatheredParameters"
    raises(text, lambda: change(torch.zeros(5, 4)))
    with zero.GatheredParameters([weight]):
        assert torch.equal(weight, before)
        square = weight.detach().t().clone()
    with zero.GatheredParameters([weight], modifier_rank=0):
        weight.data = weight.data.t()
    with zero.GatheredParameters([weight]):
        assert torch.equal(weight, square)
    engine.backward(loss_of(engine))
    engine.step()
    raises(text, lambda: change(torch.zeros(4, 4, dtype=torch.double)))
    def replace():
        with zero.GatheredParameters([weight], modifier_rank=0):
            engine.module[0].weight = torch.nn.Parameter(torch.ones(4, 4))
    raises("parameter 0.weight is not the engine's", replace)
engine = make(1)
engine.save_checkpoint(__file__ + ".saved")
assert engine.load_checkpoint(__file__ + ".saved", custom_load_fn=lambda src, dst: setattr(
    dst[0].weight, "data", src["0.weight"] + 1))[0]
weight = engine.module[0].weight.detach().clone()
engine.load_checkpoint(__file__ + ".saved")
torch.testing.assert_close(engine.module[0].weight + 1, weight)
""", ranks=2)

    def test_a_destroyed_engine_says_so(self):
        self.check("""
engine = make(1)
loss = loss_of(engine)
optimizer, weight = engine.optimizer, engine.module[0].weight
engine.destroy()
engine.destroy()
for call in (lambda: loss_of(engine), lambda: engine.backward(loss), engine.step, engine.reload_states,
             engine.offload_states, engine.empty_partition_cache, engine.train_batch_size,
             engine.gradient_accumulation_steps, engine.is_gradient_accumulation_boundary,
             lambda: engine.set_train_batch_size(2), lambda: engine.set_gradient_accumulation_boundary(True),
             lambda: engine.no_sync().__enter__(), lambda: engine.coalesce_grad_reduction().__enter__(),
             engine.get_global_grad_norm, lambda: engine.set_lr(0.1), engine.was_step_applied,
             lambda: engine.global_steps, lambda: engine.global_samples, lambda: engine.skipped_steps,
             lambda: engine.micro_steps, lambda: engine.save_16bit_model(UNUSED),
             lambda: engine.save_checkpoint(UNUSED),
             engine._zero3_consolidated_16bit_state_dict, lambda: optimizer.cur_scale):
    raises("the engine has been destroyed", call)
raises("whose engine has been destroyed", loss.backward)
assert utils.safe_get_full_fp32_param(weight) is None and utils.safe_get_full_grad(weight) is None
with zero.GatheredParameters(weight):
    weight.sum()
engine.module(torch.ones(2, 4)).sum().backward()
assert weight.grad is not None, "the module is an ordinary one again"
""")

    def test_a_retained_graph_gives_its_gradients_again(self):
        self.check("""
for stage in range(4):
    torch.manual_seed(1)
    engine = make(stage, gradient_accumulation_steps=2)
    torch.manual_seed(1)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    plain(torch.ones(2, 4)).square().mean().backward()
    weight = engine.module[0].weight
    loss = loss_of(engine)
    engine.backward(loss, retain_graph=True)
    engine.step()
    engine.backward(loss)
    # Each pass adds half of the gradient.
    torch.testing.assert_close(utils.safe_get_full_grad(weight), plain[0].weight.grad)
    engine.step()
    assert engine.global_steps == 1
    engine.destroy()
""", ranks=2)

    def test_gradients_that_are_dropped_are_not_trained_on(self):
        self.check("""
for stage in range(4):
    for drops in (lambda engine: engine.zero_grad(), lambda engine: engine.optimizer.zero_grad()):
        losses = []
        for bad_losses in (False, True):
            torch.manual_seed(1)
            engine = make(stage)
            drops(engine)
            for _ in range(3):
                losses.append(loss_of(engine).item())
                if bad_losses:
                    engine.backward(loss_of(engine) * float("nan"))
                    drops(engine)
                    engine.step()
                    assert not engine.step_result.boundary
                engine.backward(loss_of(engine))
                engine.step()
                drops(engine)
            assert engine.global_steps == engine.micro_steps == 3
        assert losses[:3] == losses[3:], losses
    torch.manual_seed(1)
    accumulates = make(stage, gradient_accumulation_steps=2)
    for _ in range(3):
        assert loss_of(accumulates).item() == losses.pop(0)
        for _ in range(2):
            accumulates.backward(loss_of(accumulates))
            accumulates.zero_grad()
            accumulates.step()
""", ranks=2)

    def test_a_second_backward_without_its_graph_says_so(self):
        self.check("""
for stage in (1, 3):
    engine = make(stage, gradient_accumulation_steps=2)
    loss = loss_of(engine)
    engine.backward(loss)
    raises("backward through the graph a second time", lambda: engine.backward(loss))
    raises("a backward pass of this step has thrown", engine.step)
""", ranks=2)

    def test_each_parameter_group_may_have_any_rate(self):
        self.check("""
from dsrun import lr_schedules
from torch.optim.lr_scheduler import LambdaLR

def model_and_optimizer(rates):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    groups = [{"params": list(layer.parameters()), "lr": rate} for layer, rate in zip(model, rates)]
    return model, torch.optim.AdamW(groups)

def check_against_pytorch(stage, make_schedule, rates):
    plain, optimizer = model_and_optimizer(rates)
    schedule = make_schedule(optimizer)
    model, of_script = model_and_optimizer(rates)
    engine = dsrun.initialize(model=model, optimizer=of_script, lr_scheduler=make_schedule(of_script), config={
        "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "zero_optimization": {"stage": stage}})[0]
    for _ in range(6):
        assert engine.get_lr() == [group["lr"] for group in optimizer.param_groups]
        loss = plain(torch.ones(2, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        found = loss_of(engine)
        torch.testing.assert_close(found, loss, rtol=2e-6, atol=0)
        engine.backward(found)
        engine.step()

for stage in (0, 1, 3):
    check_against_pytorch(stage, lambda each: LambdaLR(each, [lambda step: 0.9 ** step, lambda step: float(step > 2)]),
                          (1e-2, 3e-2))
    check_against_pytorch(stage, lambda each: lr_schedules.WarmupCosineLR(each, 8, warmup_num_steps=3), (1e-2, 3e-2))
    check_against_pytorch(stage, lambda each: LambdaLR(each, lambda step: 1.0), (0.0, 1e-2))

# set_lr keeps the ratios that the groups have now.
model, optimizer = model_and_optimizer((1e-2, 1e-3))
schedule = LambdaLR(optimizer, lambda step: step / 4)
engine = dsrun.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config={
    "train_micro_batch_size_per_gpu": 2})[0]
engine.backward(loss_of(engine))
engine.step()
engine.set_lr(0.5)
torch.testing.assert_close(engine.get_lr(), [0.5, 0.05])

# DeepSpeed's schedules of the config write their rates to all groups, but for WarmupCosineLR.
def rates_of_config(kind, params):
    model, _ = model_and_optimizer((1, 1))
    engine = dsrun.initialize(model=model, model_parameters=[
        {"params": model[0].parameters()}, {"params": model[1].parameters(), "lr": 1e-2}], config={
            "train_micro_batch_size_per_gpu": 2, "scheduler": {"type": kind, "params": params},
            "optimizer": {"type": "AdamW", "params": {"lr": 2e-2}}})[0]
    for _ in range(3):
        engine.backward(loss_of(engine))
        engine.step()
    return engine.get_lr()

warm = {"warmup_num_steps": 2, "warmup_type": "linear"}
assert rates_of_config("WarmupLR", {"warmup_max_lr": 5e-3, **warm}) == [5e-3, 5e-3]
first, second = rates_of_config("WarmupCosineLR", {"total_num_steps": 8, **warm})
assert abs(first - 2 * second) < 1e-12 and second > 0
""")

    def test_state_dicts_of_other_ranks_have_empty_shards(self):
        self.check("""
engine = make(3)
state = engine._zero3_consolidated_16bit_state_dict()
assert (state is None) == (dsrun.comm.get_rank() > 0)
sharded = engine.module.state_dict()
def read():
    return [value.untyped_storage().data_ptr() for value in sharded.values()]
if dsrun.comm.get_rank() == 0:
    raises("sharded", read)
else:  # save_pretrained looks at all ranks' tensors, and writes rank 0's
    assert read() == [0, 0, 0, 0] and all(value.numel() == 0 for value in sharded.values()), sharded
with zero.GatheredParameters(list(engine.module.parameters())):
    assert all(value.numel() for value in engine.module.state_dict().values())
""", ranks=2)

    def test_names_and_arguments_that_an_engine_does_not_have_say_so(self):
        self.check("""
from dsrun.moe import MoE
engine = make(0)
raises("neither the engine nor its module, a Sequential, has deepspeed_io", lambda: engine.deepspeed_io,
       AttributeError)
raises("engine.step() runs none", lambda: engine.optimizer.register_step_post_hook(print), NotImplementedError)
raises('bf16.enabled of the config is "auto"', lambda: make(0, bf16={"enabled": "auto"}), ValueError)
for k in (0, 5):
    raises(f"k={k} experts for each token", lambda: MoE(4, torch.nn.Linear(4, 4), num_experts=4, k=k), ValueError)
raises("compiled by torch.jit.script", lambda: dsrun.initialize(
    model=torch.nn.Sequential(torch.jit.script(torch.nn.Linear(4, 4))), config={"train_micro_batch_size_per_gpu": 2}),
    NotImplementedError)
model = torch.nn.Linear(4, 4)
dsrun.initialize(model=model, model_parameters=model.named_parameters(), config={
    "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})
""")

    def test_changes_of_parameter_groups_that_have_no_effect_say_so(self):
        self.check("""
def begin(options, make_schedule=lambda optimizer: None, rates=(0.1, 0.1), kind=torch.optim.AdamW):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    groups = [{"params": layer.parameters(), "lr": rate} for layer, rate in zip(model, rates)]
    optimizer = kind(groups, **options)
    config = {"train_micro_batch_size_per_gpu": 2}
    return dsrun.initialize(model=model, optimizer=optimizer, lr_scheduler=make_schedule(optimizer), config=config)[0]

def train(engine, steps=2):
    for _ in range(steps):
        engine.backward(loss_of(engine))
        engine.step()

def raises_after(change, text, **options):
    engine = begin({}, **options)
    train(engine)
    change(engine.optimizer.param_groups)
    raises(text, lambda: train(engine), NotImplementedError)

raises_after(lambda groups: groups[1].update(weight_decay=0.5), "weight_decay of a parameter group has changed")
raises_after(lambda groups: groups[0].update(betas=(0.5, 0.9)), "betas of a parameter group has changed")
raises_after(lambda groups: groups.append({"params": [], "lr": 0.1}), "the number of parameter groups has changed")
raises_after(lambda groups: groups[0].update(momentum=0.5), "momentum of a parameter", kind=torch.optim.SGD)
for option in ("maximize", "amsgrad", "decoupled_weight_decay"):
    raises_after(lambda groups: groups[0].update({option: not groups[0][option]}), option + " of a parameter group")
text = "the parameters of a group have changed"
raises_after(lambda groups: groups[0]["params"].pop(), text)
raises_after(lambda groups: groups[0]["params"].append(torch.nn.Parameter(torch.ones(1))), text)
raises_after(lambda groups: groups[0]["params"][0].requires_grad_(False), text)
engine = begin({})
engine.module.requires_grad_(False)
engine.module.requires_grad_(True)
train(engine)
cycle = torch.optim.lr_scheduler.OneCycleLR
engine = begin({}, lambda optimizer: cycle(optimizer, 0.1, total_steps=10))
raises("need cycle_momentum=False", lambda: train(engine), NotImplementedError)
engine = begin({}, lambda optimizer: cycle(optimizer, 0.1, total_steps=10, cycle_momentum=False))
train(engine, 5)
model = torch.nn.Linear(4, 4)
raises("a parameter group with its own betas", lambda: dsrun.initialize(
    model=model, model_parameters=[{"params": model.parameters(), "betas": (0.5, 0.9)}],
    config=engine.config | {"optimizer": {"type": "Adam", "params": {"lr": 0.1}}}), NotImplementedError)
raises("Adam has no maximize", lambda: dsrun.initialize(
    model=model, model_parameters=[{"params": model.parameters(), "maximize": True}],
    config=engine.config | {"optimizer": {"type": "Adam", "params": {"lr": 0.1}}}), NotImplementedError)
""")

    def test_optimizers_with_steps_of_their_own_are_refused(self):
        self.check("""
from dsrun import ops
model = torch.nn.Linear(4, 4)
for kind in (torch.optim.AdamW, ops.DeepSpeedCPUAdam, ops.FusedAdam, ops.FusedLion):
    class Own(kind):
        def step(self, closure=None):
            raise AssertionError("is never called")
    raises("the engine has no optimizer for __main__.Own", lambda: dsrun.initialize(
        model=model, optimizer=Own(model.parameters()), config={"train_micro_batch_size_per_gpu": 2}),
        NotImplementedError)
    dsrun.initialize(model=model, optimizer=kind(model.parameters()), config={"train_micro_batch_size_per_gpu": 2})
""")

    def test_sections_for_other_models_are_refused(self):
        self.check("""
for name in ("curriculum_learning", "data_efficiency", "expert_parallel", "moe"):
    raises(name + " of the config is for models of dsrun train", lambda: make(1, **{name: {"enabled": True}}),
           NotImplementedError)
    make(1, **{name: {"enabled": False}})
""")

    def test_a_refused_engine_leaves_the_one_that_trains(self):
        self.check("""
def train(engine):
    losses = []
    for _ in range(2):
        loss = loss_of(engine)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses
def begin(module, **more):
    return dsrun.initialize(model=module, config={**engine.config, **more})
def check_refused(text, error, **more):
    raises(text, lambda: begin(engine.module, **more), error)
torch.manual_seed(1)
expected = make(3)
torch.manual_seed(1)
engine = make(3)
first = train(expected), train(engine)
check_refused("autotp_size", NotImplementedError, tensor_parallel={"autotp_size": 2})
check_refused("leaf_module", ValueError, zero_optimization={"leaf_module": {"name": []}})
check_refused("finite", ValueError, gradient_clipping=float("nan"))
check_refused("on rank 0", ValueError, gradient_clipping=1.0 + dsrun.comm.get_rank())
some = torch.optim.SGD(list(engine.module.parameters())[:1], lr=1.0)
raises("is in no parameter group", lambda: dsrun.initialize(
    model=engine.module, optimizer=some, config={"train_micro_batch_size_per_gpu": 2}), ValueError)
raises("without an optimizer", lambda: dsrun.initialize(
    model=engine.module, lr_scheduler=lambda one: one, config={"train_micro_batch_size_per_gpu": 2}), ValueError)
assert train(engine) == train(expected) and engine.global_steps == 4
""", ranks=2)

    def test_autocast_around_an_engine_is_told_to_have_no_effect(self):
        self.check("""
from dsrun.pipe import PipelineModule
said = collect_messages()
def check_dtype(engine, dtype, kind=torch.bfloat16):
    with torch.autocast("cpu", dtype=kind):
        assert engine(torch.ones(2, 4)).dtype == dtype
        assert torch.ones(2, 2).mm(torch.ones(2, 2)).dtype == kind
section = {"enabled": True, "dtype": "bfloat16"}
check_dtype(make(1, torch_autocast=section), torch.bfloat16)
assert not said, said
check_dtype(make(1), torch.float32)
assert len(said) == 1 and "torch.autocast around the engine has no effect within it" in said[0], said
check_dtype(make(1, torch_autocast=section), torch.bfloat16, torch.float16)
dtypes = []
model = PipelineModule([torch.nn.Linear(4, 4)], num_stages=1, loss_fn=lambda outputs, labels: (
    dtypes.append(outputs.dtype), outputs.mean())[1])
engine, *_ = dsrun.initialize(model=model, config={
    "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})
with torch.autocast("cpu", dtype=torch.bfloat16):
    engine.train_batch(iter([(torch.ones(2, 4), torch.ones(2, 4))]))
    engine.eval_batch(iter([(torch.ones(2, 4), torch.ones(2, 4))]))
assert dtypes == [torch.float32] * 2 and len(said) == 1, (dtypes, said)
""")

    def test_embeddings_whose_norms_would_be_lost_are_refused(self):
        self.check("""
class Mean(torch.nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.inner = torch.nn.Sequential(kind(10, 4, **options))
    def forward(self, rows):
        return self.inner(rows).mean((0, 1))[0] * 10.0

def begin(stage, kind=torch.nn.Embedding, **more):
    torch.manual_seed(0)
    model = Mean(kind, max_norm=1.0)
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0,
              "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "zero_optimization": {"stage": stage}, **more}
    return dsrun.initialize(model=model, config=config)[0]

text = "inner.0 has max_norm=1.0"
for kind in (torch.nn.Embedding, torch.nn.EmbeddingBag):
    raises(text, lambda: begin(3, kind), NotImplementedError)
raises("lost in bfloat16", lambda: begin(0, bf16={"enabled": True}), NotImplementedError)
# A schedule of the config that the script's replaces is not read.
optimizer = torch.optim.SGD((model := Mean(torch.nn.Embedding)).parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
dsrun.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config={
    "train_micro_batch_size_per_gpu": 2, "scheduler": {"type": "Another", "params": {}}})
rows = torch.tensor([[0, 1, 2], [4, 3, 3]])
torch.manual_seed(0)
plain = Mean(torch.nn.Embedding, max_norm=1.0)
optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
engines = [begin(stage) for stage in range(3)]
for _ in range(3):
    loss = plain(rows)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for engine in engines:
        found = engine(rows)
        torch.testing.assert_close(found, loss)
        engine.backward(found)
        engine.step()
model = Mean(torch.nn.Embedding, max_norm=1.0)
config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}
dsrun.initialize(model=model, config=config)[0](rows)  # a pass renormalises for itself
""", ranks=2)

    def test_configs_of_ranks_that_differ_are_refused(self):
        self.check("""
rank = dsrun.comm.get_rank()
sgd = {"type": "SGD", "params": {"lr": 0.1 * (1 + rank)}}
raises("optimizer.params.lr of the config is 0.1 on rank 0 and 0.2 on rank 1", lambda: make(2, optimizer=sgd),
       ValueError)
raises("zero_optimization.stage of the config is 0 on rank 0 and 1", lambda: make(rank), ValueError)
raises("bf16 of the config is null on rank 0", lambda: make(1, **({"bf16": {"enabled": True}} if rank else {})),
       ValueError)
model = torch.nn.Linear(4, 4)
raises("optimizer.params.lr", lambda: dsrun.initialize(
    model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1 + rank),
    config={"train_micro_batch_size_per_gpu": 2}), ValueError)
raises("rates of the parameter groups of the config is [0.1, 0.1] on rank 0", lambda: dsrun.initialize(
    model=model, optimizer=torch.optim.SGD([{"params": [model.weight], "lr": 0.1},
                                            {"params": [model.bias], "lr": 0.1 + rank}]),
    config={"train_micro_batch_size_per_gpu": 2}), ValueError)
make(2, csv_monitor={"enabled": True, "output_path": f"{__file__}.{rank}"})
dsrun.comm.barrier()
""", ranks=2)

    def test_arguments_without_effect_are_refused(self):
        self.check("""
import argparse
engine = make(1)
raises("state is moved to cpu only", lambda: engine.offload_states(device="nvme"), ValueError)
raises("schedule", lambda: engine.compile(schedule=[(0, [])]), NotImplementedError)
raises("two configs", lambda: dsrun.initialize(
    argparse.Namespace(deepspeed_config="ds_config.json"), model=engine.module, config=engine.config), ValueError)
for key in ("partition_activations", "contiguous_memory_optimization", "cpu_checkpointing"):
    config = {"activation_checkpointing": {key: True}}
    raises("checkpointing.configure", lambda: dsrun.checkpointing.configure(None, config), NotImplementedError)
assert not dsrun.checkpointing.is_configured()
for call in (dsrun.comm.get_rank, dsrun.comm.get_world_size, dsrun.comm.barrier):
    raises("the group of all ranks only", lambda: call(group=object()), NotImplementedError)
""")

    def test_damaged_files_of_a_checkpoint_are_named(self):
        self.check("""
import pathlib
folder = pathlib.Path(__file__).with_name("checkpoints")
engine = make(1)
engine.save_checkpoint(folder, tag="first")
before = engine.module[0].weight.detach().clone()
for name in ("latest", "first/latest", "first/step-0/client_state.pt"):
    path = folder / name
    content = path.read_bytes()
    for damaged in (b"", content[:len(content) // 2], b"\\x80\\x04" + b"x" * 100):
        path.write_bytes(damaged)
        raises(f"{path} is damaged", lambda: engine.load_checkpoint(folder))
        assert torch.equal(engine.module[0].weight, before)
    path.write_bytes(content)
path.unlink()
raises(f"there is no {path}", lambda: engine.load_checkpoint(folder), FileNotFoundError)
path.write_bytes(content)
assert engine.load_checkpoint(folder)[0] == str(folder / "first")
""")

    def test_arguments_of_other_types_are_named(self):
        self.check("""
engine = make(3)
raises("set_lr(lr='x')", lambda: engine.set_lr("x"), TypeError)
engine.set_lr(torch.tensor(0.5))
assert engine.get_lr() == [0.5]
weight = engine.module[0].weight
raises("modifier_rank='0'", lambda: zero.GatheredParameters(weight, modifier_rank="0"), TypeError)
with zero.GatheredParameters(weight, modifier_rank=0):
    weight.data.zero_()
""")

    def test_files_that_rank_0_cannot_write_are_an_error_of_all_ranks(self):
        self.check("""
import pathlib, pickle
engine = make(3)
kind = OSError if dsrun.comm.get_rank() == 0 else RuntimeError
raises("File exists", lambda: engine.save_16bit_model(__file__), kind)
folder = str(pathlib.Path(__file__).with_name("checkpoints"))
raises("pickle", lambda: engine.save_checkpoint(folder, tag="first", client_state={"f": lambda: 0}),
       (AttributeError, pickle.PicklingError) if dsrun.comm.get_rank() == 0 else RuntimeError)
engine.save_checkpoint(folder, tag="second")
engine.backward(loss_of(engine))
""", ranks=2)

    def test_a_save_replaces_the_one_of_its_tag(self):
        self.check("""
import os, pickle
folder = __file__ + ".saved"
def save(engine, name, **more):
    engine.backward(loss_of(engine))
    engine.step()
    engine.save_checkpoint(folder, tag="best", client_state={"name": name, **more})
def names():
    dsrun.comm.barrier()
    found = sorted(os.listdir(os.path.join(folder, "best")))
    dsrun.comm.barrier()
    return found
engine = make(1)
for number in range(1, 4):
    save(engine, number)
    assert names() == [".lock", "latest", f"step-{number}"], names()
engine.save_checkpoint(folder, tag="best", client_state={"name": "again"})
raises("pickle", lambda: save(engine, 4, function=lambda: 0),
       (AttributeError, pickle.PicklingError) if dsrun.comm.get_rank() == 0 else RuntimeError)
assert names() == [".lock", "latest", "step-3"], names()
assert engine.load_checkpoint(folder)[1] == {"name": "again"} and engine.global_steps == 3
save(make(1), "of another")
assert names() == [".lock", "latest", "step-1"], names()
assert engine.load_checkpoint(folder)[1] == {"name": "of another"} and engine.global_steps == 1
""", ranks=2)

    def test_a_kill_within_a_save_leaves_the_checkpoint_before_it(self):
        self.check("""
import os, signal, subprocess, sys
folder = __file__ + ".saved"
def save(engine, name):
    engine.backward(loss_of(engine))
    engine.step()
    engine.save_checkpoint(folder, tag="best", client_state={"name": name})
class Killing:
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)
engine = make(1)
if len(sys.argv) > 1:
    engine.load_checkpoint(folder)
    save(engine, Killing())
save(engine, "first")
assert subprocess.run([sys.executable, __file__, "killed"]).returncode == -signal.SIGKILL
engine = make(1)
assert engine.load_checkpoint(folder)[1] == {"name": "first"} and engine.global_steps == 1
save(engine, "second")
assert sorted(os.listdir(folder + "/best")) == [".lock", "latest", "step-2"]
""")

    def test_modules_and_losses_that_cannot_be_trained_say_so(self):
        self.check("""
import warnings
nn = torch.nn
config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}}
def begin(*layers, **more):
    return dsrun.initialize(model=nn.Sequential(*layers), config=config | more)[0]

text = "1 is Embedding(sparse=True)"
raises(text, lambda: begin(nn.Linear(4, 4), nn.Embedding(4, 4, sparse=True)), NotImplementedError)
raises("0 is EmbeddingBag(sparse=True)", lambda: begin(nn.EmbeddingBag(4, 4, sparse=True)), NotImplementedError)
begin(nn.Linear(4, 4), nn.Embedding(4, 4, sparse=True).requires_grad_(False))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    raises("0.weight has no shape yet", lambda: begin(nn.LazyLinear(4)), ValueError)
    raises("has no shape yet", lambda: begin(nn.Linear(4, 4), nn.LazyBatchNorm1d(affine=False)), ValueError)

engine = make(1)
raises("the loss is of shape (2, 4)", lambda: engine.backward(engine(torch.ones(2, 4))), ValueError)
raises("the loss is a dict", lambda: engine.backward({"loss": loss_of(engine)}), ValueError)
engine.backward(loss_of(engine).view(1))
engine.step()

for own, others in (({}, ("half", "bfloat16", "double")), ({"bf16": {"enabled": True}}, ("half", "float"))):
    engine = make(3, **own)
    for name in others:
        raises("cannot change them to torch.", getattr(engine, name))
    raises("cannot change them to torch.float16", lambda: engine.to(torch.float16))
    (engine.bfloat16 if own else engine.float)()
    engine.to("cpu")
    engine.to(torch.bfloat16 if own else torch.float32)
    inputs = torch.ones(2, 4, dtype=torch.bfloat16 if own else torch.float32)
    engine.backward(engine(inputs).square().mean())
    engine.step()
    module = engine.module
    engine.destroy()
    module.half()
auto = {**config, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}
model = nn.Linear(4, 4)
for groups in (None, model.parameters(), [{"params": model.parameters(), "lr": 1e-3}]):
    raises('optimizer.params.lr of the config is "auto"', lambda: dsrun.initialize(
        model=model, model_parameters=groups, config=auto), ValueError)
""")

    def test_weights_that_match_in_part_say_so(self):
        self.check("""
from dsrun.checkpoint_files import load_state_dict_from_zero_checkpoint as load
said = collect_messages()
engine = make(1)
folder = __file__ + ".saved"
engine.save_checkpoint(folder)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
load(model, folder)
assert not said and torch.equal(model[1].weight, engine.module[1].weight)
load(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4)), folder)
assert any("the checkpoint has not: 2.weight, 2.bias" in text for text in said), said
assert any("the model has not: 1.bias, 1.weight" in text for text in said), said
raises("has no weight of the model: it has 0.bias, 0.weight, 1.bias and 1 more, and the model a.weight, a.bias",
       lambda: load(torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4)}), folder), ValueError)
del said[:]
make(1, unknown_key=1)
assert any("unknown keys are ignored: unknown_key" in text for text in said), said
""")

    def test_nested_gathered_parameters(self):
        self.check("""
rank = dsrun.comm.get_rank()
for stage in (1, 3):
    engine = make(stage)
    first, second = engine.module[0].weight, engine.module[1].weight
    gather = zero.GatheredParameters
    with gather([first, second], modifier_rank=0):
        with gather(first, modifier_rank=0):
            first.data.fill_(2.0)
        assert second.sum() != 0
        raises("with modifier_rank=0, which decides", lambda: gather(first).__enter__())
    with gather(first):
        assert first.eq(2.0).all()
        with gather(first):
            pass
        raises("which has not gathered 1.weight", lambda: gather(second).__enter__())
        assert first.eq(2.0).all()
    engine.backward(loss_of(engine))
    engine.step()
""", ranks=2)


if __name__ == "__main__":
    OPTIONS = parse_options()
    unittest.main(argv=sys.argv[:1])
