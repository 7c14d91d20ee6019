"""What the names of `deepspeed` that other projects use give, for symbols_test.py: a function per name.

    symbol_cases.py ENGINE                    with ENGINE dsrun or deepspeed, on every rank

Prints a record per case, with the same keys on both engines.
"""

import contextlib
import inspect
import io
import json
import os
import re
import shutil
import tempfile

import torch
from records import ENGINE, RANK, WORLD, log

import deepspeed
from deepspeed.runtime.engine import DeepSpeedEngine
from deepspeed.runtime.lr_schedules import VALID_LR_SCHEDULES
from torch import nn

ADAMW = {"type": "AdamW", "params": {"lr": 0.02, "weight_decay": 0.1, "torch_adam": True}}


def make_model(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def make_config(stage=3, **more):
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0,
              "zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True,
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0,
                                    "stage3_gather_16bit_weights_on_model_save": True}}
    return config | {"optimizer": ADAMW} | more


def make_engine(stage=3, optimizer=None, model=None, **more):
    config = make_config(stage, **more)
    if optimizer is not None:
        del config["optimizer"]
    model = model or make_model()
    return deepspeed.initialize(model=model, optimizer=optimizer,
                                model_parameters=model.parameters(), config=config)[0]


def batch(step):
    generator = torch.Generator().manual_seed(100 * step + RANK)
    return torch.randn(2, 4, generator=generator)


def train(engine, steps, first=0):
    losses = []
    for step in range(first, first + steps):
        loss = (engine(batch(step)) - 1.0).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


def gathered_sums(parameters):
    parameters = list(parameters)
    with deepspeed.zero.GatheredParameters(parameters):
        return [p.detach().double().sum().item() for p in parameters]


def names(function, count=99):
    """The parameters of a function or class, with the defaults that JSON has."""
    found = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    plain = (type(None), bool, int, float, str)
    # {} is as good as None.
    return [[p.name, p.default or None if isinstance(p.default, (dict, type(None)))
             else p.default if isinstance(p.default, plain) else "..."] for p in found[:count]]


def signatures():
    utils = deepspeed.utils
    log("signatures", initialize=names(deepspeed.initialize), Init=names(deepspeed.zero.Init, 10),
        GatheredParameters=names(deepspeed.zero.GatheredParameters),
        **{name: names(getattr(utils, name)) for name in (
            "safe_get_full_fp32_param", "safe_get_full_grad", "safe_get_full_optimizer_state",
            "safe_set_full_fp32_param", "safe_set_full_grad", "safe_set_full_optimizer_state",
            "safe_get_local_fp32_param", "safe_get_local_grad", "safe_get_local_optimizer_state",
            "safe_set_local_fp32_param", "safe_set_local_grad",
            "safe_set_local_optimizer_state")})
    log("engine signatures", **{name: names(getattr(deepspeed.DeepSpeedEngine, name)) for name in (
        "save_checkpoint", "load_checkpoint", "save_16bit_model", "get_global_grad_norm", "no_sync",
        "set_gradient_accumulation_boundary", "zero_gather_16bit_weights_on_model_save",
        "zero_optimization_stage", "zero_optimization_partition_weights", "empty_partition_cache",
        "reload_states", "_zero3_consolidated_16bit_state_dict")})


def comm():
    log("version", value=deepspeed.__version__.split("+")[0])
    log("comm", rank=deepspeed.comm.get_rank(), world=deepspeed.comm.get_world_size(),
        initialized=deepspeed.comm.is_initialized())
    groups = deepspeed.utils.groups
    log("utils.groups", world=groups._get_data_parallel_world_size(),
        rank=groups._get_data_parallel_rank(),
        sequence=[groups._get_sequence_parallel_world_size(), groups._get_sequence_parallel_rank()],
        model=groups._get_model_parallel_world_size(),
        group=deepspeed.comm.get_world_size(group=groups._get_data_parallel_group()))


def small_values():
    from deepspeed.accelerator import get_accelerator
    from deepspeed.checkpoint.utils import clone_tensors_for_torch_save
    from deepspeed.runtime.utils import move_to_device
    from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum, OffloadStateTypeEnum
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
    log("enumerations", status={s.name: s.value for s in ZeroParamStatus},
        devices={d.name: d.value for d in OffloadDeviceEnum},
        states={s.name: s.value for s in OffloadStateTypeEnum}, schedules=VALID_LR_SCHEDULES)
    storage = torch.arange(100.0)
    item = clone_tensors_for_torch_save({"a": storage[:3], "b": [storage[5:7], 4], "c": (1,)})
    log("clone_tensors_for_torch_save", sizes=[item["a"].untyped_storage().nbytes(),
                                               item["b"][0].untyped_storage().nbytes()],
        values=[item["a"].tolist(), item["b"][0].tolist(), item["b"][1], list(item["c"])])
    part = torch.ones(2, dtype=torch.float64)
    moved = move_to_device([part, {"x": (part,)}], "cpu")
    kept = move_to_device([part], "cpu", lambda value: isinstance(value, torch.Tensor))
    log("move_to_device", types=[type(moved).__name__, type(moved[1]["x"]).__name__],
        same=[moved[0] is part, kept[0] is part])
    accelerator = get_accelerator()
    log("get_accelerator", names=[accelerator.device_name(), accelerator.current_device_name(),
                                  accelerator.communication_backend_name()],
        bools=[accelerator.is_available(), accelerator.is_synchronized_device(),
               accelerator.is_bf16_supported(), accelerator.is_pinned(torch.ones(2))],
        device=str(accelerator.device(0) if accelerator.device_name() != "cpu" else "cpu"),
        pinned=accelerator.pin_memory(torch.ones(2)).tolist(),
        on=accelerator.on_accelerator(torch.ones(1)))


def memory_and_logs():
    from deepspeed.runtime.utils import see_memory_usage
    from deepspeed.utils import instrument_w_nvtx, logger
    from deepspeed.utils.logging import log_dist
    accelerator = deepspeed.get_accelerator()
    accelerator.reset_peak_memory_stats()
    before, kept = accelerator.memory_allocated(), torch.ones(1 << 23)
    during = accelerator.memory_allocated()
    del kept
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        see_memory_usage("not forced")
        see_memory_usage("forced", force=True)
    log("memory", grown=(during - before) >> 24, peak=accelerator.max_memory_allocated() > 0,
        total=accelerator.total_memory() > accelerator.available_memory() > 1 << 20,
        reserved=accelerator.memory_reserved() > 0, stats=sorted(accelerator.memory_stats()),
        timers=accelerator.use_host_timers(), event=accelerator.Event is None,
        lines=[re.sub(r"[0-9.]+", "N", " ".join(line.split()))
               for line in output.getvalue().splitlines()])
    with accelerator.stream(accelerator.current_stream()):
        accelerator.synchronize()
    log_dist("a message", ranks=[0])
    log("logs", level=logger.isEnabledFor(40), of=names(log_dist), see=names(see_memory_usage),
        called=instrument_w_nvtx(lambda x, y: x - y)(5, y=3))


def on_device():
    class Old(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.Tensor(2, 3))
            self.register_buffer("count", torch.zeros(2, dtype=torch.long))
            self.register_buffer("scale", torch.ones(2, dtype=torch.float32))
            self.inner = nn.Linear(3, 2)

    found = []
    for options in ({"device": "meta"}, {"device": "cpu"}, {"device": "meta", "enabled": False}):
        with deepspeed.OnDevice(dtype=torch.bfloat16, **options):
            model = Old()
        found.append([f"{value.dtype} {value.device} {list(value.shape)}"
                      for value in model.state_dict().values()])
    log("OnDevice", tensors=found, after=str(torch.Tensor(2).dtype))


def zero_init():
    with deepspeed.zero.Init(config_dict_or_path=make_config()):
        model = make_model()
    parameters = list(model.parameters())
    log("ds_tensor", values=[p.ds_tensor.flatten().tolist() for p in parameters],
        status=[p.ds_status.name for p in parameters], empty=[p.numel() for p in parameters])
    shapes = [list(getattr(p, "ds_shape", p.shape)) for p in parameters]
    log("zero.Init", shapes=shapes, sums=gathered_sums(parameters))
    log("zero.Init, losses", losses=train(make_engine(model=model), 3))


def gathered():
    engine = make_engine()
    before = gathered_sums(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(engine.module[0].weight, modifier_rank=0):
        if RANK == 0:
            with torch.no_grad():
                engine.module[0].weight.fill_(0.25)
    # At the next step, DeepSpeed returns to its fp32 weights, which have not changed.
    log("zero.GatheredParameters", before=before, after=gathered_sums(engine.module.parameters()),
        losses=train(engine, 1))
    engine.destroy()


def leaf_modules():
    model = make_model()
    found = deepspeed.utils.set_z3_leaf_modules(model, [nn.Linear])
    error = ""
    try:
        deepspeed.utils.set_z3_leaf_modules(model, [nn.Conv2d])
    except ValueError:
        error = "ValueError"
    log("utils.set_z3_leaf_modules", found=[type(m).__name__ for m in found], error=error)


def parameter_attributes():
    engine = make_engine()
    parameters = list(engine.module.parameters())
    first = parameters[0].ds_id
    log("parameter attributes", ids=[p.ds_id - first for p in parameters],
        shapes=[list(p.ds_shape) for p in parameters], numels=[p.ds_numel for p in parameters],
        # On one rank, dsrun's parameters keep their values.
        status=[p.ds_status.name for p in parameters] if WORLD > 1 else [])
    with deepspeed.zero.GatheredParameters(parameters):
        log("ds_status, gathered", status=[p.ds_status.name for p in parameters])
    log("safe_get_full", **safe_values(engine, parameters[0]))
    engine.destroy()


def safe_values(engine, weight):
    utils = deepspeed.utils
    loss = (engine(batch(0)) - 1.0).square().mean()
    engine.backward(loss)
    gradient = utils.safe_get_full_grad(weight)
    engine.step()
    return {"grad": gradient.flatten().tolist(),
            "weight": utils.safe_get_full_fp32_param(weight).flatten().tolist(),
            "exp_avg": utils.safe_get_full_optimizer_state(weight, "exp_avg").flatten().tolist()}


def writes_of_all_ranks():
    """safe_set_full_*. Without ZeRO, DeepSpeed's do nothing."""
    utils = deepspeed.utils
    for stage in (1, 2, 3):
        engine = make_engine(stage)
        weight = engine.module[0].weight
        engine.backward((engine(batch(0)) - 1.0).square().mean())
        gradient = utils.safe_get_full_grad(weight)
        utils.safe_set_full_grad(weight, gradient * 3)
        written = utils.safe_get_full_grad(weight).flatten().tolist()
        engine.step()
        norm, average = float(engine.get_global_grad_norm()), state_of(weight, "exp_avg")
        utils.safe_set_full_optimizer_state(weight, average * 2, "exp_avg")
        losses = train(engine, 2, 1)
        utils.safe_set_full_fp32_param(weight, utils.safe_get_full_fp32_param(weight) + 0.5)
        log(f"safe_set_full, stage {stage}", gradient=written, norm=norm, losses=losses,
            average=average.flatten().tolist(), weight=state_of(weight).flatten().tolist(),
            averages=[state_of(p, "exp_avg").sum().item() for p in engine.module.parameters()])
        engine.destroy()


def state_of(parameter, key=None):
    if key is None:
        return deepspeed.utils.safe_get_full_fp32_param(parameter)
    return deepspeed.utils.safe_get_full_optimizer_state(parameter, key)


def writes_of_each_rank():
    """safe_{get,set}_local_*. The ranks' parts need not be those of DeepSpeed: their whole is."""
    utils = deepspeed.utils
    engine = make_engine()
    bias = engine.module[2].bias  # three elements
    engine.backward((engine(batch(0)) - 1.0).square().mean())
    utils.safe_set_local_grad(bias, utils.safe_get_local_grad(bias) * 3)
    gradient = utils.safe_get_full_grad(bias).tolist()
    engine.step()
    norm = float(engine.get_global_grad_norm())
    average = utils.safe_get_local_optimizer_state(bias, "exp_avg")
    utils.safe_set_local_optimizer_state(bias, average * 2, "exp_avg")
    averages, losses = state_of(bias, "exp_avg").tolist(), train(engine, 2, 1)
    utils.safe_set_local_fp32_param(bias, utils.safe_get_local_fp32_param(bias) + 0.5)
    log("safe_set_local", gradient=gradient, norm=norm, averages=averages, losses=losses,
        weight=state_of(bias).tolist())
    engine.destroy()


def engine_attributes():
    for stage in (1, 2, 3):
        engine = make_engine(stage, gradient_accumulation_steps=2)
        losses = train(engine, 4)
        log(f"engine attributes, stage {stage}", losses=losses,
            norm=float(engine.get_global_grad_norm()), stage=engine.zero_optimization_stage(),
            partitions=engine.zero_optimization_partition_weights(),
            gathers=engine.zero_gather_16bit_weights_on_model_save(),
            rates=[group["lr"] for group in engine.optimizer.optimizer.param_groups],
            offload=hasattr(engine.optimizer, "parameter_offload"),
            is_module=isinstance(engine, nn.Module) and isinstance(engine, DeepSpeedEngine),
            same=DeepSpeedEngine is deepspeed.DeepSpeedEngine,
            sizes=[engine.train_batch_size(), engine.train_micro_batch_size_per_gpu(),
                   engine.gradient_accumulation_steps()],
            steps=[engine.global_steps, engine.micro_steps])
        engine.destroy()


def returned_losses():
    for scales in (True, False):
        engine = make_engine(1, gradient_accumulation_steps=4)
        loss = engine(batch(0)).square().mean()
        log(f"engine.backward, scale_wrt_gas={scales}", loss=loss.item(),
            returned=engine.backward(loss, scale_wrt_gas=scales).item())
        engine.destroy()


def rates_of_the_script():
    """A rate that is set in a group holds for one step of the config's schedule."""
    for stage in (0, 2):
        engine = make_engine(stage, scheduler={"type": "WarmupLR", "params": {
            "warmup_min_lr": 0.01, "warmup_max_lr": 0.05, "warmup_num_steps": 5,
            "warmup_type": "linear"}})
        losses, rates = [], []
        for step in range(5):
            if step == 2:
                engine.optimizer.param_groups[0]["lr"] = 0.3
            losses += train(engine, 1, step)
            rates += engine.get_lr()
        log(f"a rate in param_groups, stage {stage}", losses=losses, rates=rates)
        engine.destroy()


def arguments():
    """Functions for the optimizer and the scheduler, and a data set with a collate_fn."""
    model, config = make_model(), make_config(2)
    del config["optimizer"]
    engine, optimizer, loader, scheduler = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config, training_data=list(torch.eye(4).repeat(3, 1)),
        collate_fn=lambda samples: 2.0 * torch.stack(samples), distributed_port=29511, dist_init_required=True,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.1),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5))
    losses, rates = [], []
    for inputs in loader:
        loss = (engine(inputs) - inputs.mean()).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        rates += engine.get_lr()
    log("initialize with functions", losses=losses, rates=rates, largest=inputs.max().item(),
        steps=engine.global_steps, scheduler=type(scheduler).__name__, same=scheduler is engine.lr_scheduler)
    engine.destroy()


def parameter_offload():
    """What TRL does around generate() with gathered parameters."""
    engine = make_engine()
    losses = train(engine, 1)
    offload = engine.optimizer.parameter_offload
    with deepspeed.zero.GatheredParameters(engine.module.parameters()), torch.no_grad():
        parameters = [*offload.module.parameters(), *offload.module.ds_external_parameters()]
        for parameter in parameters:
            parameter.ds_active_sub_modules.clear()
        for hook in [*offload.forward_hooks, *offload.backward_hooks]:
            hook.remove()
        offload.forward_hooks = []
        offload.backward_hooks = []
        outputs = [engine.module(batch(5))[0].tolist() for _ in range(2)]
        offload._register_deepspeed_module(offload.module)
    log("optimizer.parameter_offload", outputs=outputs, losses=losses + train(engine, 2, 1))
    engine.destroy()


def boundaries():
    engine = make_engine(1, gradient_accumulation_steps=4)
    losses = []
    for step in range(4):
        engine.set_gradient_accumulation_boundary(step % 2 == 1)
        losses += train(engine, 1, step)
    log("set_gradient_accumulation_boundary", losses=losses, steps=engine.global_steps)
    engine.destroy()
    engine = make_engine(1, gradient_accumulation_steps=2)
    losses = []
    for step in range(0, 4, 2):
        with engine.no_sync():
            loss = (engine(batch(step)) - 1.0).square().mean()
            engine.backward(loss)
        engine.set_gradient_accumulation_boundary(True)
        losses += [loss.item(), *train(engine, 1, step + 1)]
    log("no_sync", losses=losses)
    engine.destroy()


def batch_sizes():
    engine = make_engine(1, gradient_accumulation_steps=2)
    losses, are_boundaries = [], []
    for step in range(12):
        if step == 6:  # DeepSpeed counts all micro-batches: elsewhere its next step would be shorter
            engine.set_train_batch_size(6 * WORLD)  # three micro-batches of two
        are_boundaries.append(engine.is_gradient_accumulation_boundary())
        losses += train(engine, 1, step)
    sizes = [engine.train_batch_size(), engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()]
    try:
        engine.set_train_batch_size(6 * WORLD + 1)
        error = ""
    except ValueError as refusal:
        error = type(refusal).__name__
    log("set_train_batch_size", boundaries=are_boundaries, losses=losses, sizes=sizes, error=error,
        steps=[engine.global_steps, engine.micro_steps])
    engine.destroy()


def states():
    from deepspeed.runtime.zero.offload_config import OffloadStateTypeEnum
    engine = make_engine()
    losses = train(engine, 2)
    if ENGINE == "dsrun":  # DeepSpeed's CPU accelerator cannot offload to the CPU
        engine.offload_states(include=[OffloadStateTypeEnum.optim_states])
        engine.reload_states()
        engine.offload_states()
        engine.reload_states()
    engine.empty_partition_cache()
    log("offload_states, reload_states, empty_partition_cache", losses=losses + train(engine, 2, 2))
    engine.destroy()


def shared_folder():
    """A folder of rank 0 that all ranks know."""
    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    torch.distributed.broadcast_object_list(folder)
    return folder[0]


def checksums(state):
    return {name: value.double().abs().sum().item() for name, value in state.items()}


def checkpoints():
    from deepspeed.utils.zero_to_fp32 import (get_fp32_state_dict_from_zero_checkpoint,
                                              load_state_dict_from_zero_checkpoint)
    folder = shared_folder()
    engine = make_engine()
    train(engine, 2)
    saved = engine.save_checkpoint(folder, client_state={"epoch": 7})
    state = engine._zero3_consolidated_16bit_state_dict()
    written = engine.save_16bit_model(folder, "model.bin")
    torch.distributed.barrier()  # DeepSpeed's other ranks do not wait for the file
    file = torch.load(os.path.join(folder, "model.bin"), weights_only=True)
    log("save_16bit_model", written=written, file=checksums(file),
        state=checksums(state) if RANK == 0 else {})
    continued = train(engine, 2, 2)
    engine.destroy()
    loaded = make_engine(model=make_model(seed=9))
    path, client = loaded.load_checkpoint(folder)
    log("save_checkpoint, load_checkpoint", saved=bool(saved), path="global_step2" in (path or ""),
        epoch=client["epoch"], steps=loaded.global_steps, continued=continued,
        again=train(loaded, 2, 2), missing=loaded.load_checkpoint(folder + "/none")[0],
        latest=open(os.path.join(folder, "latest"), encoding="utf-8").read())
    loaded.destroy()
    weights = get_fp32_state_dict_from_zero_checkpoint(folder)
    model = load_state_dict_from_zero_checkpoint(make_model(seed=9), folder, tag="global_step2")
    files = convert_checkpoints(folder)
    log("convert_zero_checkpoint_to_fp32_state_dict", files=files)
    log("utils.zero_to_fp32", weights=checksums(weights), loaded=checksums(model.state_dict()))
    torch.distributed.barrier()
    if RANK == 0:
        shutil.rmtree(folder)


def convert_checkpoints(folder):
    """The tensors of the files that convert_zero_checkpoint_to_fp32_state_dict writes."""
    from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict as convert
    from safetensors.torch import load_file
    files = {}
    for name, options in (("one", {}), ("parts", {"max_shard_size": 130}),
                          ("safe", {"max_shard_size": None, "safe_serialization": True})):
        output = os.path.join(folder, f"{name}{RANK}")
        convert(folder, output, **options)
        for file in sorted(os.listdir(output)):
            path = os.path.join(output, file)
            if file.endswith(".json"):
                with open(path, encoding="utf-8") as text:
                    files[file] = json.load(text)["weight_map"]
            else:
                files[file] = checksums(load_file(path) if name == "safe" else torch.load(path))
    return files


def activation_checkpointing():
    from deepspeed.runtime.activation_checkpointing import checkpointing
    checkpointing.configure(None)
    layer, x = make_model(), batch(0).requires_grad_()
    deepspeed.checkpointing.checkpoint(layer, x).sum().backward()
    log("activation_checkpointing", configured=checkpointing.is_configured(),
        gradient=x.grad.flatten().tolist(), weight=layer[0].weight.grad.flatten().tolist())


def client_optimizers():
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    from deepspeed.ops.lion import DeepSpeedCPULion
    for name, make in {
            "DeepSpeedCPUAdam": lambda p: DeepSpeedCPUAdam(p, lr=0.02, weight_decay=0.1),
            "DeepSpeedCPUAdam, L2": lambda p: DeepSpeedCPUAdam(
                p, lr=0.02, weight_decay=0.1, betas=(0.8, 0.95), adamw_mode=False),
            "DeepSpeedCPULion": lambda p: DeepSpeedCPULion(p, lr=0.01, weight_decay=0.1,
                                                           betas=(0.9, 0.95)),
            "DeepSpeedCPUAdagrad": lambda p: DeepSpeedCPUAdagrad(p, lr=0.05, weight_decay=0.1),
    }.items():
        model = make_model()
        engine = make_engine(2, make(model.parameters()), model)
        log(name, losses=train(engine, 4))
        engine.destroy()


SCHEDULES = {
    "LRRangeTest": [{"lr_range_test_min_lr": 0.01, "lr_range_test_step_size": 3,
                     "lr_range_test_staircase": stairs} for stairs in (False, True)],
    "OneCycle": [{"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 4,
                  "decay_step_size": 2, "decay_lr_rate": 0.5, **more}
                 for more in ({}, {"cycle_second_step_size": 3, "cycle_first_stair_count": 2})],
    "WarmupLR": [{"warmup_max_lr": 0.1, "warmup_num_steps": 4},
                 {"warmup_min_lr": 0.01, "warmup_num_steps": 5, "warmup_type": "linear"}],
    "WarmupDecayLR": [{"total_num_steps": 9, "warmup_max_lr": 0.1, "warmup_num_steps": 3}],
    "WarmupCosineLR": [{"total_num_steps": 9, "warmup_num_steps": 3, "warmup_min_ratio": 0.1,
                        "warmup_type": kind} for kind in ("log", "linear")],
}


def schedules():
    from deepspeed.runtime import lr_schedules
    for name, variants in SCHEDULES.items():
        rates = []
        for options in variants:
            optimizer = torch.optim.SGD(make_model().parameters(), lr=0.2)
            scheduler = getattr(lr_schedules, name)(optimizer, **options)
            rates.append([optimizer.param_groups[0]["lr"]])
            for _ in range(11):
                scheduler.step()
                rates[-1].append(optimizer.param_groups[0]["lr"])
            assert scheduler.get_last_lr() == [optimizer.param_groups[0]["lr"]]
        state = scheduler.state_dict()
        log(f"lr_schedules.{name}", rates=rates, state=state)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    scheduler = lr_schedules.WarmupLR(optimizer, warmup_max_lr=0.5, warmup_num_steps=4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=scheduler,
                                      config={k: v for k, v in make_config(1).items()
                                              if k != "optimizer"})
    log("lr_schedules in training", losses=train(engine, 5), rates=engine.get_lr())
    engine.destroy()


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    for function in (signatures, comm, small_values, memory_and_logs, on_device, zero_init, gathered, leaf_modules,
                     parameter_attributes, writes_of_all_ranks, writes_of_each_rank, engine_attributes, returned_losses,
                     rates_of_the_script, arguments, parameter_offload, boundaries, batch_sizes, states, checkpoints,
                     activation_checkpointing, schedules, client_optimizers):
        function()


if __name__ == "__main__":
    main()
