#!/usr/bin/env python3
"""dsrun.compat in one process: the modules and metadata that stand in for deepspeed, and its refusals.

    compat_test.py --bin DIR [--python PATH]      as trainers_test.py
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from trainers_test import ROOT, parse_options

ELASTICITY = ROOT / "tests/unit/config/goldens/elasticity.json"
INSTALLED = "import dsrun.compat\ndsrun.compat.install()\n"
ENGINE = INSTALLED + """
import deepspeed, torch
config = {"train_batch_size": 2, "gradient_clipping": 0.0}
module = torch.nn.Linear(3, 2)
"""


class CompatTest(unittest.TestCase):
    def run_program(self, text, *arguments, command=None, cwd=None):
        package = os.environ.get("PYTHONPATH", OPTIONS.bin.parent / "python")
        result = subprocess.run(command or [OPTIONS.python, *(arguments or ["-c", text])], capture_output=True,
                                cwd=cwd, text=True,
                                env=dict(os.environ, PYTHONPATH=str(package), OMP_NUM_THREADS="1"), check=False)
        self.status = result.returncode
        return result.stdout + result.stderr

    def check(self, text, expected):
        output = self.run_program(text)
        self.assertIn(expected, output)
        self.assertEqual(self.status, "Error: " in expected, output)  # ends with an exception, or well

    def test_metadata_and_modules_are_found(self):
        self.check(INSTALLED + """
import importlib.metadata, importlib.util, deepspeed, deepspeed.runtime.zero.partition_parameters as parameters
version = importlib.metadata.version("deepspeed")
print(importlib.util.find_spec("deepspeed").name, version == deepspeed.__version__, version.split("+")[0],
      parameters.ZeroParamStatus is deepspeed.zero.ZeroParamStatus)
""", "deepspeed True 0.19.8 True")

    def test_modules_of_the_manual_are_those_of_dsrun(self):
        manual = (ROOT / "cli/manual/python.md").read_text()
        listed = re.search("in scripts that import dsrun, the modules are(.*?)\n\n", manual, re.DOTALL)[1]
        names = re.findall(r"`dsrun\.(\w+)`", listed)
        self.assertGreater(len(names), 10)
        self.check(f"import dsrun\nprint('missing:', [name for name in {names} if not hasattr(dsrun, name)])",
                   "missing: []")

    def test_a_second_installation_does_nothing(self):
        self.check(INSTALLED + "import deepspeed\ndsrun.compat.install()\nprint(deepspeed.DeepSpeedEngine.__module__)",
                   "dsrun.engine")

    def test_threads_of_torch_distributed_end(self):
        self.check(INSTALLED + """
import os, torch
def count():
    return sum("gloo" in open(f"/proc/self/task/{thread}/comm").read() for thread in os.listdir("/proc/self/task"))
dsrun.compat.init_distributed("gloo")
import torch.distributed.nn.functional
torch.distributed.all_reduce(torch.ones(2))
before = count()
dsrun.compat.leave_distributed()
print(before > 0, count())
""", "True 0")

    def test_deepspeed_itself_is_refused(self):
        self.check("import sys, types\nsys.modules['deepspeed'] = types.ModuleType('deepspeed')\n" + INSTALLED,
                   "RuntimeError: dsrun.compat.install: DeepSpeed itself has been imported already")

    def test_an_accelerate_that_found_no_deepspeed_is_refused(self):
        self.check("import sys, types\nsys.modules['accelerate.accelerator'] = types.ModuleType('a')\n" + INSTALLED,
                   "RuntimeError: dsrun.compat.install: accelerate has been imported already")

    def test_names_that_are_not_there_raise(self):
        self.check(INSTALLED + "import deepspeed.autotuning",
                   "ModuleNotFoundError: No module named 'deepspeed.autotuning'")
        self.check(INSTALLED + "import deepspeed\ndeepspeed.init_inference",
                   "AttributeError: module 'deepspeed' has no attribute 'init_inference'")

    def test_experts_of_more_ranks_than_there_are_are_refused(self):
        self.check(INSTALLED + """
import torch, deepspeed
from deepspeed.moe.layer import MoE
layer = MoE(4, torch.nn.Linear(4, 4), num_experts=4, ep_size=2)
deepspeed.initialize(model=layer, config={"train_batch_size": 2})
""", "ValueError: ep_size 2 does not divide the 1 ranks: start a multiple of it, or use another ep_size")

    def test_parallelism_inside_of_modules_is_refused(self):
        self.check(INSTALLED + "import deepspeed\ndeepspeed.tp_model_init(None, 2, None)",
                   "NotImplementedError: tp_model_init: ")
        self.check(INSTALLED + """
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
UlyssesSPAttentionHF.register_with_transformers(model_name_or_path="x")
""", "NotImplementedError: UlyssesSPAttentionHF: sequences of Python modules are not divided between ranks")

    def test_arguments_that_cannot_be_honoured_are_refused_by_name(self):
        self.check(ENGINE + """
config["optimizer"] = {"type": "SGD", "params": {"lr": 1.0}}
group = object()
for call, arguments in ((deepspeed.initialize, dict(mpu=group)), (deepspeed.initialize, dict(mesh_param=(1, 1))),
                        *((deepspeed.zero.Init, {name: value}) for name, value in dict(
                            data_parallel_group=group, zero_param_parallel_group=group,
                            sequence_data_parallel_group=group, zero_quantized_weights=True,
                            zero_quantized_nontrainable_weights=True, param_swapper=group).items())):
    try:
        call(**arguments, **(dict(model=module, config=config) if call is deepspeed.initialize else {}))
        print(arguments, "is accepted")
    except NotImplementedError as error:
        print(str(error).split("=")[0])
""", "\n".join(["initialize(mpu", "initialize(mesh_param", *(f"zero.Init({name}" for name in (
            "data_parallel_group", "zero_param_parallel_group", "sequence_data_parallel_group",
            "zero_quantized_weights", "zero_quantized_nontrainable_weights", "param_swapper"))]))

    def test_sections_without_a_counterpart_are_refused_by_key(self):
        self.check(ENGINE + """
config["optimizer"] = {"type": "SGD", "params": {"lr": 1.0}}
for name in ("wandb", "comet", "flops_profiler", "comms_logger"):
    for enabled in (True, False):
        try:
            deepspeed.initialize(model=module, config=config | {name: {"enabled": enabled}})
            print(name, "passes", end=" ")
        except (NotImplementedError, ValueError) as error:
            print(name, name in str(error), end=" ")
""", "wandb True wandb passes comet True comet passes flops_profiler True flops_profiler passes "
                   "comms_logger True comms_logger passes")

    def test_names_of_other_devices_and_paths_are_the_same(self):
        self.check(ENGINE + """
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion
from deepspeed.runtime.engine import DeepSpeedEngine
def train(make):
    torch.manual_seed(3)
    module = torch.nn.Linear(3, 2)
    deepspeed.zero.register_external_parameter(module, module.bias)
    engine, *_ = deepspeed.initialize(model=module, optimizer=make(module.parameters()), config=config)
    deepspeed.zero.unregister_external_parameter(module, module.bias)
    for _ in range(3):
        engine.backward(engine(torch.ones(2, 3)).square().sum())
        engine.step()
    assert isinstance(engine, DeepSpeedEngine)
    return module.weight.tolist()
adam, lion = dict(lr=0.1, weight_decay=0.2, betas=(0.8, 0.9)), dict(lr=0.1, weight_decay=0.2, betas=(0.8, 0.9))
print([train(lambda p: FusedAdam(p, adam_w_mode=w, **adam)) == train(lambda p: DeepSpeedCPUAdam(
    p, adamw_mode=w, **adam)) for w in (True, False)], train(lambda p: FusedLion(p, **lion)) == train(
    lambda p: DeepSpeedCPULion(p, **lion)), train(lambda p: FusedLion(p, **lion)) != train(
    lambda p: FusedAdam(p, **adam)))
""", "[True, True] True True")

    def test_elastic_batches_equal_deepspeeds(self):
        # Version 0.1 of the section: 0.2 differs where DeepSpeed gives an impossible answer (elasticity.h).
        rows = [row for row in json.loads(ELASTICITY.read_text()) if row[5:8] == [0.1, 1, 1] and row[-1][0] != 0
                and row[-1][1]]
        self.assertGreater(len(rows), 100)
        self.check(INSTALLED + f"""
from deepspeed import elasticity
def shortened(counts):
    return counts if len(counts) <= 12 else [len(counts), counts[0], counts[-1], sum(counts)]
incompatible = 0
for most, micro, least, gpus, larger, version, _, _, world, given, expected in {rows!r}:
    section = dict(enabled=True, max_train_batch_size=most, micro_batch_sizes=micro, min_gpus=least, max_gpus=gpus,
                   prefer_larger_batch=larger, version=version)
    world = world if given else 0
    try:
        found = elasticity.compute_elastic_config(dict(elasticity=section), "0.19.6", world)
        found = [found[0], shortened(found[1]), found[2] if world else None]
    except elasticity.ElasticityError as error:
        found = type(error).__name__
        # DeepSpeed says so of sections that fit no number, too.
        incompatible += found == "ElasticityIncompatibleWorldSize" == expected
        found = expected if isinstance(expected, str) else found
    assert found == expected, (section, world, expected, found)
print("all compared", incompatible > 20)
""", "all compared True")

    def test_adagrad_begins_with_state(self):
        program = ENGINE + """
optimizer = torch.optim.Adagrad(module.parameters(), lr=0.5)
for _ in range(STEPS):
    optimizer.step()
    optimizer.state[module.bias]["step"] += 1
engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config)
before = module.bias.detach().clone()
engine.backward(engine(torch.ones(2, 3)).sum())
engine.step()
print([round(x, 5) for x in (before - module.bias).tolist()])
"""
        self.check(program.replace("STEPS", "0"), "[0.5, 0.5]")
        self.check(program.replace("STEPS", "1"), "ValueError: the optimizer has state of earlier steps")

    def test_adams_decay_is_where_the_script_puts_it(self):
        self.check(ENGINE + """
for decoupled in (False, True):
    results = []
    for by_engine in (False, True):
        torch.manual_seed(1)
        module = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(module.parameters(), lr=0.1, weight_decay=0.5, decoupled_weight_decay=decoupled)
        engine = deepspeed.initialize(model=module, optimizer=optimizer, config=config)[0] if by_engine else None
        for _ in range(3):
            loss = (engine or module)(torch.ones(2, 3)).square().sum()
            (engine.backward if by_engine else torch.Tensor.backward)(loss)
            (engine or optimizer).step()
            optimizer.zero_grad()
        results.append(module.weight.detach().clone())
    print(decoupled, torch.allclose(*results, rtol=1e-5))
""", "False True\nTrue True")

    def test_rates_are_those_of_the_configs_optimizer(self):
        self.check(ENGINE + """
for kind, params in (("Adagrad", {}), ("Adam", {}), ("Muon", dict(lr=0.5, muon_lr=0.125)), ("Muon", dict(lr=0.25))):
    config["optimizer"] = {"type": kind, "params": params}
    engine = deepspeed.initialize(model=torch.nn.Linear(3, 2, bias=False), config=config)[0]
    rates = engine.get_lr()
    before = engine.module.weight.detach().clone()
    engine.backward(engine(torch.ones(2, 3)).sum())
    engine.step()
    changed = (engine.module.weight - before).abs().max().item()
    print(rates == engine.get_lr() == engine.native.rates, engine.get_lr(), changed <= 1.01 * rates[0])
""", "True [0.01] True\nTrue [0.001] True\nTrue [0.125] True\nTrue [0.25] True")
        self.check(ENGINE + """
config["optimizer"] = {"type": "Adam"}
groups = [{"params": [module.weight], "lr": 0.1}, {"params": [module.bias]}]
print(deepspeed.initialize(model=module, model_parameters=groups, config=config)[0].get_lr())
""", "[0.1, 0.001]")

    def test_a_damaged_checkpoint_is_not_read(self):
        output = self.run_program(ENGINE + """
import pathlib, tempfile
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as read
config["optimizer"] = {"type": "SGD", "params": {"lr": 1.0}}
engine, *_ = deepspeed.initialize(model=module, config=config)
with tempfile.TemporaryDirectory() as folder:
    engine.save_checkpoint(folder)
    print(torch.equal(read(folder)["weight"], module.weight))
    file = next(pathlib.Path(folder).glob("*/step-0/rank-00000.bin"))
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    read(folder)
""")
        self.assertIn("True", output)
        self.assertRegex(output, "RuntimeError: tensor '.*rank-00000.bin has a wrong checksum")

    def test_lamb_of_the_script_is_that_of_the_config(self):
        self.check(INSTALLED + """
import torch
import deepspeed
from deepspeed.ops.lamb import FusedLamb
def train(client=None, **section):
    torch.manual_seed(3)
    model = torch.nn.Linear(3, 2)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=client and client(model.parameters()), model_parameters=model.parameters(),
        config={"train_batch_size": 2, "zero_optimization": {"stage": 1}, **section})
    for _ in range(3):
        engine.backward(engine(torch.ones(2, 3)).square().sum())
        engine.step()
    return [value for parameter in model.parameters() for value in parameter.flatten().tolist()]
options = dict(lr=0.1, betas=(0.8, 0.9), weight_decay=0.1, max_coeff=2.0, min_coeff=0.1)
own = train(lambda parameters: FusedLamb(parameters, **options))
print(own == train(**{"optimizer": {"type": "Lamb", "params": options}}), own != train(
    **{"optimizer": {"type": "Lamb", "params": options | {"lr": 0.2}}}))
""", "True True")

    def test_a_script_runs_as_main(self):
        self.assertIn("usage: python -m dsrun.compat", self.run_program("", "-m", "dsrun.compat"))
        output = self.run_program("", "-m", "dsrun.compat", "-m", "json.tool", "--help")
        self.assertIn("usage: ", output)
        self.assertIn("infile", output)

    def test_the_launcher_runs_scripts_and_modules(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "train.py").write_text(
                "import deepspeed, sys\n"
                "deepspeed.init_distributed()\n"
                "print(deepspeed.__version__, deepspeed.comm.get_world_size(), sys.argv[1:], __name__)\n")
            for number, program in enumerate((["train.py"], ["--module", "train"])):
                command = [OPTIONS.bin / "dsrun", "--engine", "native", "-n", "2", "--python", OPTIONS.python,
                           "--pass_local_rank", "--run_dir", folder / f"run{number}", *program, "--lr", "1"]
                output = self.run_program("", command=command, cwd=folder)
                for rank in range(2):
                    self.assertRegex(output, rf"{rank}@localhost: 0\.19\.8\+dsrun\.\S+ 2 "
                                     rf"\['--local_rank={rank}', '--lr', '1'\] __main__")

    def test_an_engine_without_an_optimizer_evaluates(self):
        self.check(ENGINE + """
expected = module(torch.ones(2, 3)).detach().clone()
engine, optimizer, _, scheduler = deepspeed.initialize(model=module, config=config)
found = engine(torch.ones(2, 3))
print(optimizer, scheduler, found.requires_grad, torch.equal(found, expected), module.weight.requires_grad)
""", "None None False True True")
        for call in ("engine.step()", "engine.backward(engine(torch.ones(2, 3)).sum())"):
            self.check(ENGINE + f"engine, *_ = deepspeed.initialize(model=module, config=config)\n{call}",
                       "RuntimeError: engine." + call[7:].split("(")[0] + "(): the engine has no optimizer")

    def test_a_later_engine_takes_the_module(self):
        self.check(ENGINE + """
first, *_ = deepspeed.initialize(model=module, config=config)
config["optimizer"] = {"type": "SGD", "params": {"lr": 1.0}}
second, *_ = deepspeed.initialize(model=module, config=config)
before = module.bias.detach().clone()
del first
second.backward(second(torch.ones(2, 3)).sum())
second.step()
print([round(x, 5) for x in (before - module.bias).tolist()])
""", "[2.0, 2.0]")

    def test_a_pipeline_has_its_engine(self):
        self.check(ENGINE + """
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from deepspeed.runtime.pipe.engine import PipelineEngine
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from deepspeed.utils import RepeatingLoader
config["optimizer"] = {"type": "SGD", "params": {"lr": 0.1}}
topology = PipeModelDataParallelTopology(num_pp=1, num_mp=1, num_dp=1)
layers = [LayerSpec(torch.nn.Linear, 3, 2), TiedLayerSpec("key", torch.nn.Linear, 2, 2)]
model = PipelineModule(layers, topology=topology, loss_fn=torch.nn.functional.mse_loss)
engine, *_ = deepspeed.initialize(model=model, config=config)
loss = engine.train_batch(RepeatingLoader([(torch.ones(2, 3), torch.ones(2, 2))]))
print(isinstance(engine, PipelineEngine), isinstance(engine, deepspeed.DeepSpeedEngine), loss.shape,
      [name for name, _ in model.named_parameters()][:2])
import deepspeed.utils.groups
from deepspeed.utils import groups
print("grid", groups.mpu is engine.grid)
deepspeed.initialize(model=module, config=config)
print("none", groups.mpu)
groups.mpu = engine.grid
print("model of", groups._get_model_parallel_world_size(), dsrun.groups.mpu is engine.grid)
""", "True True torch.Size([]) ['tied_modules.key.weight', 'tied_modules.key.bias']\n"
                   "grid True\nnone None\nmodel of 1 True\n")

    def test_the_rate_that_set_lr_sets_stays(self):
        self.check(ENGINE + """
optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
engine, optimizer, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config)
engine.set_lr(0.25)
before = module.bias.detach().clone()
engine.backward(engine(torch.ones(2, 3)).sum())
engine.step()
print([round(x, 5) for x in (before - module.bias).tolist()], engine.get_lr())
""", "[0.5, 0.5] [0.25]")

    def test_decays_of_groups_need_none_in_the_config(self):
        self.check(ENGINE + """
config["optimizer"] = {"type": "SGD", "params": {"lr": 1.0}}
groups = [{"params": [module.weight], "weight_decay": 0.5}, {"params": [module.bias], "weight_decay": 0.0}]
before = [p.detach().clone() for p in (module.weight, module.bias)]
engine, *_ = deepspeed.initialize(model=module, model_parameters=groups, config=config)
engine.backward(engine(torch.ones(2, 3)).sum() * 0)
engine.step()
print([torch.allclose(p, factor * b) for p, b, factor in zip((module.weight, module.bias), before, (0.5, 1))])
""", "[True, True]")

    def test_no_clipping_may_be_infinite(self):
        self.check(ENGINE + """
config.update(gradient_clipping=float("inf"), optimizer={"type": "SGD", "params": {"lr": 1.0}})
before = module.bias.detach().clone()
engine, *_ = deepspeed.initialize(model=module, config=config)
engine.backward(engine(torch.ones(2, 3)).sum() * 50)
engine.step()
print((before - module.bias).tolist(), engine.gradient_clipping())
""", "[100.0, 100.0] inf")

    def test_values_that_have_no_meaning_are_refused_by_key(self):
        self.check(ENGINE + """
config["optimizer"] = {"type": "SGD", "params": {"lr": 1.0}}
for wrong in ({"fp16": "on"}, {"zero_optimization": [1]},
              {"zero_optimization": {"stage": "two"}}, {"gradient_clipping": "auto"},
              {"zero_optimization": {"reduce_bucket_size": float("inf")}}, {"gradient_clipping": float("nan")},
              {"tensor_parallel": {"autotp_size": 2}}, {"sequence_parallel_size": 2}, {"pipeline": {"stages": 2}},
              {"fp16": True}, {"zero_optimization": False}, {"optimizer": []}, {"scheduler": "WarmupLR"},
              {"optimizer": {"type": "SGD", "params": {"lr": float("inf")}}},
              {"fp16": {"auto_cast": True, "enabled": "auto"}}, {"bf16": None, "zero_optimization": None}):
    try:
        engine, *_ = deepspeed.initialize(model=module, config=config | wrong)
        print(list(wrong), "is accepted", engine(torch.ones(2, 3)).dtype)
    except (ValueError, NotImplementedError, RuntimeError) as error:
        section, value = next(iter(wrong.items()))
        while isinstance(value, dict):
            section, value = list(value.items())[-1]
        key = section
        print("names its key" if key in str(error) else f"{wrong}: {error}")
""", "names its key\n" * 15 + "['bf16', 'zero_optimization'] is accepted torch.float32")

    def test_an_optimizer_of_null_is_none(self):
        self.check(ENGINE + """
config |= {"optimizer": None, "scheduler": None}
weight, bias = module.weight, module.bias
engine, optimizer, *_ = deepspeed.initialize(model=module, model_parameters=[weight, bias], config=config)
print(optimizer, "optimizer" in config)
""", "None True")

    def test_params_of_null_are_none(self):
        self.check(ENGINE + """
config |= {"optimizer": {"type": "AdamW", "params": None}, "scheduler": {"type": "WarmupLR", "params": None}}
for given in (None, module.parameters()):
    engine, *_ = deepspeed.initialize(model=module, model_parameters=given, config=config)
    print("trains at", engine.get_lr())
""", "trains at [0.0]\ntrains at [0.0]\n")
        self.check(ENGINE + """
config["optimizer"] = {"type": "AdamW", "params": []}
deepspeed.initialize(model=module, config=config)
""", "ValueError: optimizer.params of the config is []: it is a section")

    def test_keys_that_occur_twice_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "ds.json")
            path.write_text('{"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 1, "lr": 2}}}')
            self.check(ENGINE + f"deepspeed.initialize(model=module, config={str(path)!r})",
                       f"ValueError: the config {path}: has the key lr twice in one section")

    def test_a_parameter_in_two_groups_is_refused(self):
        self.check(ENGINE + """
config["optimizer"] = {"type": "SGD", "params": {"lr": 1.0}}
groups = [{"params": [module.weight, module.bias, module.bias]}, {"params": [module.bias], "lr": 0.1}]
deepspeed.initialize(model=module, model_parameters=groups, config=config)
""", "ValueError: some parameters appear in more than one parameter group")

    def test_leaf_modules_of_the_config_are_units(self):
        self.check(ENGINE + """
from dsrun.units import partition
module = torch.nn.ModuleDict({"a": torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))})
apart = len(partition(module))
config["zero_optimization"] = {"stage": 3, "leaf_module": {"names": ["a"]}}
config["optimizer"] = {"type": "SGD", "params": {"lr": 1.0}}
engine, *_ = deepspeed.initialize(model=module, config=config)
deepspeed.pipe.PipelineModule([module["a"]], num_stages=1)
print(apart, len(engine.passes.units), "and without that config", len(partition(module)))
""", "3 2 and without that config 3")

    def test_schedulers_that_would_have_no_effect_are_refused(self):
        self.check(ENGINE + """
errors = []
def refused(call):
    try:
        call()
    except (NotImplementedError, ValueError) as error:
        errors.append(str(error).split(":")[0])
def schedule(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 1)
refused(lambda: deepspeed.initialize(model=module, lr_scheduler=schedule, config=config))
config["optimizer"] = {"type": "Muon", "params": {"muon_lr": 0.1, "adam_lr": 0.01}}
module.weight.use_muon, module.bias.use_muon = True, False
engine, *_ = deepspeed.initialize(model=module, config=config)
refused(lambda: engine.set_lr(0.5))
print(errors)
""", "['initialize(lr_scheduler=...) without an optimizer', 'optimizer.params has muon_lr or adam_lr']")

    def test_unknown_names_are_errors(self):
        self.check(ENGINE + """
import tempfile
config["optimizer"] = {"type": "AdamW", "params": {"lr": 1.0}}
engine, *_ = deepspeed.initialize(model=module, config=config)
class Stream(torch.utils.data.IterableDataset):
    pass
errors = []
for call in (lambda: deepspeed.utils.safe_set_full_optimizer_state(module.bias, torch.ones(2), "foo"),
             lambda: engine.offload_states(include=["foo"]), lambda: engine.make_loader(Stream())):
    try:
        call()
    except (KeyError, TypeError, ValueError) as error:
        errors.append(type(error).__name__)
with tempfile.TemporaryDirectory() as folder:
    engine.save_checkpoint(folder, tag=0)
    errors.append(engine.load_checkpoint(folder, tag=0)[0] == folder + "/0")
print(errors)
""", "['KeyError', 'ValueError', 'TypeError', True]")

    def test_samples_are_counted_in_containers(self):
        self.check(ENGINE + """
class OfDictionary(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = module

    def forward(self, batch):
        return self.inner(batch["inputs"][0]).sum()

config["optimizer"] = {"type": "SGD", "params": {"lr": 0.1}}
engine, *_ = deepspeed.initialize(model=OfDictionary(), config=config)
engine.backward(engine({"scale": torch.tensor(1.0), "inputs": [torch.ones(2, 3)]}))
engine.step()
print("samples", engine.global_samples)
""", "samples 2")

    def test_the_engine_knows_its_ranks(self):
        self.check(ENGINE + """
config["optimizer"] = {"type": "Adam", "params": {"lr": 1e-3}}
engine, *_ = deepspeed.initialize(model=module, config=config)
print(engine.local_rank, engine.global_rank, engine.world_size, engine.dp_world_size)
""", "0 0 1 1")

    def test_attributes_of_the_module_are_the_engines(self):
        self.check(ENGINE + """
module.dtype, module.names = module.weight.dtype, ["cat", "dog"]
engine, *_ = deepspeed.initialize(model=module, config=config)
print(engine.dtype, engine.names, engine.in_features)
""", "torch.float32 ['cat', 'dog'] 3")

    def test_the_loader_drops_what_the_config_says(self):
        self.check(ENGINE + """
for drops in (False, True):
    engine, _, loader, _ = deepspeed.initialize(
        model=module, training_data=list(torch.eye(5, 3)), config=config | {"dataloader_drop_last": drops})
    print([len(batch) for batch in loader], engine.native.warnings)
""", "[2, 2, 1] []\n[2, 2] []")

    def test_parameters_that_stay_in_fp32_are_refused(self):
        text = ENGINE + """
module._keep_in_fp32_modules = ["bias"]
config["optimizer"] = {"type": "Adam", "params": {"lr": 1e-3}}
engine, *_ = deepspeed.initialize(model=module, config=config | {"KIND": {"enabled": True}})
print("trains in", engine.module.bias.dtype)
"""
        self.check(text.replace("KIND", "fp16"), "NotImplementedError: bias is to stay in fp32")
        self.check(text.replace("KIND", "bf16"), "trains in torch.bfloat16")
        strict = text.replace("KIND", "bf16").replace("_modules =", "_modules_strict =")
        self.check(strict, "NotImplementedError: bias is to stay in fp32")


if __name__ == "__main__":
    OPTIONS = parse_options()
    unittest.main(argv=sys.argv[:1])
