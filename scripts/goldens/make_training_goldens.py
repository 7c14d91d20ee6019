#!/usr/bin/env python3
"""Makes tests/numerics/goldens/training.json: thirty steps of DeepSpeed on a small model.

    python scripts/goldens/make_training_goldens.py tests/numerics/goldens/training.json [PREFIX]

With PREFIX only the runs whose names begin with it are made anew, the others stay in the file.
Needs deepspeed 0.19.8 and torch 2.11 on a machine without GPU, and a compiler for DeepSpeed's Adam
kernels, which the runs with 16-bit masters need (torch's Adam rounds every operation); the test that
reads the golden (tests/numerics/deepspeed_training_test.cc) needs no Python and builds the same model
from the same formulas.

A run is {"name", "world_size", "stage", "config": the ds_config, "losses": mean over ranks and
micro-batches, "lrs", "betas": beta1 (only where it moves), "scales": the loss scale of the step,
"skipped": numbers of the skipped steps from 0, "norms": before clipping, null on skipped steps (and at
stage 0 in fp32, where DeepSpeed reports none); a list of equal values is written once,
"parameters": {"1": [...], "30": [...]}: every 9th fp32 weight after that many steps, "hot": the
micro-batches, counted over ranks, whose loss is multiplied by "factor" (only where there are any),
"scale_wrt_gas": false where backward is called so, "odd": true where the model is the odd one}. The odd
model has a frozen parameter (w0), one that two layers read (w1), one without elements (z3; not at stage 3,
where DeepSpeed cannot gather it) and one that takes no part in the loss (u4).

What is done to DeepSpeed, and why:
- fp16 and its kernels run on this CPU although DeepSpeed asks for hardware support: it is told yes.
- At stage 0 engine.backward does not scale the loss, but the optimizer unscales: the script scales.
- At stage 0 backward(loss, scale_wrt_gas=False) divides all the same when the loss is the model's own
  output, whose hooks run before the ones that would tell them not to: a product of it is given.
- At stage 0 the optimizer steps once with zero gradients when it is built, which decays weights and
  counts as a step for Adam's bias correction: it is kept from doing so.
- On a step after which the scale grows, gradients are divided by the new scale: by the old one here.
- fp32 state beside 16-bit masters exists only in DeepSpeedCPUAdam, under offload_optimizer: it is used,
  and not written to the run's config, as it is about where the state lies.
- torch_autocast in fp16 at stages 1 to 3: an overflow ends DeepSpeed's step before its GradScaler hears
  of it, so the scale stays where it is; and what is clipped are the scaled gradients. Both are put right
  here: the optimizer's own unscale_and_clip_grads gets the scaler's scale. "as it is" has neither.
- Muon orthogonalises in bf16 where it may: in fp32 here. Under ZeRO it does so before the norm is taken
  and clips the result; the runs do not clip, and have no norms.
"""

import json
import os
import pathlib
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.multiprocessing as mp

STEPS = 30
MICRO_BATCH = 4
WIDTHS = (6, 8, 8, 3)
EVERY = 9

ADAM = {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.9, 0.99], "weight_decay": 0.01}}
FP16 = {"enabled": True, "loss_scale_window": 1000, "initial_scale_power": 10}
# Overflows at first, grows, overflows again.
FP16_MOVING = {"enabled": True, "loss_scale_window": 3, "initial_scale_power": 20}
BF16_MASTERS = {"enabled": True, "bf16_master_weights_and_grads": True}
# DeepSpeed's kernels take 1 - beta in fp32, which for 0.99 is 1e-6 off; 16-bit state makes much of it. Of these
# betas it is exact.
EXACT = {"type": "AdamW", "params": {**ADAM["params"], "betas": [0.875, 0.984375]}}
BF16_THROUGHOUT = {"bf16": {**BF16_MASTERS, "bf16_optimizer_states": True}, "optimizer": EXACT}
SGD = {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}}
ADAGRAD = {"type": "Adagrad", "params": {"lr": 0.05, "weight_decay": 0.01}}
LION = {"type": "Lion", "params": {"lr": 0.002, "betas": [0.9, 0.99], "weight_decay": 0.01}}
FP16_MASTERS = {**FP16, "fp16_master_weights_and_grads": True}
AUTOCAST = {"enabled": True, "dtype": "bfloat16"}
AUTOCAST_FP16 = {"enabled": True, "dtype": "float16"}
# Hot micro-batches and their factor: of two ranks one overflows; so small that nothing does.
HOT = {"autocast fp16 overflows": ([10, 12, 27], 4096.0), "autocast fp16 as it is": (list(range(60)), 1 / 64)}
SLOW_SGD = {"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}}
MUON = {"type": "Muon", "params": {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01, "ns_method": "standard"}}
UNTESTED = {"zero_allow_untested_optimizer": True}
OFFLOAD = {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}

HALF = {"bf16": {"bf16": {"enabled": True}}, "fp16": {"fp16": FP16}}
ADAM_L2 = {"type": "Adam", "params": {**ADAM["params"], "adam_w_mode": False}}
# At stage 0 DeepSpeed loses Adagrad's state, and with clipping its own stages differ; under ZeRO it keeps Muon's
# momentum and update in 16 bit, but at stage 1 with fp32 accumulation.
IN_HALF = [(ADAM_L2, {}, (0, 1, 2, 3)), (SGD, UNTESTED, (0, 1, 2, 3)),
           (ADAGRAD, {**UNTESTED, "gradient_clipping": 0.0}, (1, 2, 3)), (LION, {**UNTESTED, **OFFLOAD}, (1, 2, 3)),
           (MUON, {"gradient_clipping": 0.0}, (0,))]
# What is set beside the optimizer, by what it adds to the name.
BESIDE = {"": {}, " accumulation": {"gradient_accumulation_steps": 2}, " clipping 0.1": {"gradient_clipping": 0.1}}
MUON_FP32 = {**HALF["bf16"], "optimizer": MUON, "gradient_clipping": 0.0, "data_types": {"grad_accum_dtype": "fp32"},
             "zero_optimization": {"reduce_scatter": False}}

# name, config beside the batch, world sizes, stages
RUNS = [
    ("fp32", {}, (1, 2), (0, 1, 2, 3)),
    ("fp32 no clipping", {"gradient_clipping": 0}, (2,), (0, 3)),
    ("fp32 clipping 0.1", {"gradient_clipping": 0.1}, (1, 2), (0, 1, 2, 3)),
    ("fp32 accumulation", {"gradient_accumulation_steps": 3}, (1, 2), (0, 1, 2, 3)),
    ("fp32 prescale", {"prescale_gradients": True, "zero_optimization": {"reduce_scatter": False}}, (2,), (0, 1, 2)),
    ("fp32 predivide", {"gradient_predivide_factor": 4.0, "zero_optimization": {"reduce_scatter": False}}, (2,),
     (0, 1, 2)),
    ("fp32 sum", {"gradient_allreduce_op": "sum"}, (2,), (0, 1, 2)),
    ("fp32 bf16 reduction", {"communication_data_type": "bf16"}, (2,), (0,)),
    ("fp32 OneCycle", {"scheduler": {"type": "OneCycle", "params": {
        "cycle_min_lr": 0.001, "cycle_max_lr": 0.05, "cycle_first_step_size": 10, "decay_step_size": 5,
        "decay_lr_rate": 0.5}}}, (1, 2), (0, 1, 2, 3)),
    ("fp32 WarmupCosineLR", {"scheduler": {"type": "WarmupCosineLR", "params": {
        "total_num_steps": 25, "warmup_num_steps": 5}}}, (2,), (0, 2)),
    ("bf16", {"bf16": {"enabled": True}}, (1, 2), (0, 1, 2, 3)),
    ("bf16 accumulation", {"bf16": {"enabled": True}, "gradient_accumulation_steps": 3}, (1, 2), (0, 1, 2, 3)),
    ("bf16 fp32 accumulation", {"bf16": {"enabled": True}, "gradient_accumulation_steps": 3,
                                "data_types": {"grad_accum_dtype": "fp32"}}, (1, 2), (1, 2, 3)),
    ("bf16 fp32 reduction", {"bf16": {"enabled": True}, "communication_data_type": "fp32"}, (2,), (0, 1, 2, 3)),
    ("fp16", {"fp16": FP16}, (1, 2), (0, 1, 2, 3)),
    ("fp16 moving scale", {"fp16": FP16_MOVING}, (1, 2), (1, 2, 3)),
    # Without prescaling DeepSpeed's sum of two ranks overflows at stage 0 where the mean does not.
    ("fp16 moving scale", {"fp16": FP16_MOVING, "prescale_gradients": True}, (1, 2), (0,)),
    ("fp16 consecutive", {"fp16": {**FP16_MOVING, "hysteresis": 3, "consecutive_hysteresis": True}}, (2,), (1, 3)),
    ("fp16 static", {"fp16": {"enabled": True, "loss_scale": 512}}, (1, 2), (0, 1, 2, 3)),
    ("fp16 static too large", {"fp16": {"enabled": True, "loss_scale": 262144.0}}, (1,), (0, 1, 2, 3)),
    ("fp16 accumulation", {"fp16": FP16, "gradient_accumulation_steps": 3}, (1, 2), (0, 1, 2, 3)),
    ("masters bf16 all", BF16_THROUGHOUT, (1, 2), (1, 2, 3)),
    ("masters bf16 clipping 0.1", {**BF16_THROUGHOUT, "gradient_clipping": 0.1}, (2,), (1, 3)),
    ("masters bf16 accumulation", {**BF16_THROUGHOUT, "gradient_accumulation_steps": 3}, (2,), (1, 2, 3)),
    ("masters bf16 fp32 state", {"bf16": BF16_MASTERS, **OFFLOAD}, (1, 2), (1, 2, 3)),
    ("masters fp16 fp32 state", {"fp16": FP16_MASTERS, **OFFLOAD}, (1, 2), (1, 2, 3)),
    ("masters fp16 all", {"fp16": FP16_MASTERS, **OFFLOAD, "optimizer": {"type": "AdamW", "params": {
        **EXACT["params"], "fp32_optimizer_states": False}}}, (1, 2), (1, 2, 3)),
    ("fp16 WarmupLR", {"fp16": FP16_MOVING, "scheduler": {"type": "WarmupLR", "params": {
        "warmup_num_steps": 12, "warmup_type": "linear"}}}, (2,), (1, 2, 3)),
    ("gas unscaled fp32", {"optimizer": SLOW_SGD, **UNTESTED, "gradient_accumulation_steps": 3, "gradient_clipping": 0},
     (1, 2), (0, 1, 2, 3)),
    ("gas unscaled fp16", {"fp16": FP16, "gradient_accumulation_steps": 3}, (2,), (0, 1, 2, 3)),
    ("odd parameters", {}, (1, 2), (0, 1, 2, 3)),
    ("odd parameters accumulated", {"gradient_accumulation_steps": 3}, (2,), (0, 1, 2, 3)),
    *[(f"clipping {clip} {dtype}", {**HALF[dtype], "gradient_clipping": clip}, (1, 2), (0, 1, 2, 3))
      for clip in (0.0, 0.1) for dtype in HALF],
    *[(f"optimizer {optimizer['type']} {dtype}{name}", {**HALF[dtype], "optimizer": optimizer, **more, **beside},
       (1, 2), stages)
      for name, beside in BESIDE.items() for optimizer, more, stages in IN_HALF for dtype in HALF
      if not (optimizer is ADAGRAD and "gradient_clipping" in beside)],
    ("optimizer Muon bf16 fp32 accumulation", MUON_FP32, (1, 2), (1,)),
    # Not on one rank: DeepSpeed rounds the sum to bf16 there, too, where it sends nothing.
    ("optimizer Muon bf16 fp32 accumulation of 2", {**MUON_FP32, "gradient_accumulation_steps": 2}, (2,), (1,)),
    # Last: DeepSpeed does not forget that autocast has been on.
    ("autocast bf16", {"torch_autocast": AUTOCAST}, (1, 2), (0, 1, 2, 3)),
    ("autocast bf16 accumulation", {"torch_autocast": AUTOCAST, "gradient_accumulation_steps": 3}, (2,),
     (0, 1, 2, 3)),
    ("bf16 autocast", {"bf16": {"enabled": True}, "torch_autocast": AUTOCAST}, (1, 2), (0, 1, 2, 3)),
    # What DeepSpeed's example of bf16 throughout is configured to do.
    ("masters bf16 all autocast", {**BF16_THROUGHOUT, "torch_autocast": AUTOCAST}, (1, 2), (1, 2, 3)),
    ("masters bf16 all autocast accumulation", {**BF16_THROUGHOUT, "torch_autocast": AUTOCAST,
                                                "gradient_accumulation_steps": 3}, (2,), (1, 2, 3)),
    ("optimizer SGD", {"optimizer": SGD, **UNTESTED}, (2,), (0, 1, 2, 3)),
    ("optimizer Adagrad", {"optimizer": ADAGRAD, **UNTESTED}, (2,), (0, 1, 2, 3)),
    ("optimizer Muon", {"optimizer": MUON, "gradient_clipping": 0.0, "zero_optimization": {"reduce_scatter": False}}, (2,),
     (0, 1, 2, 3)),
    ("optimizer Lion", {"optimizer": LION, **UNTESTED, **OFFLOAD}, (2,), (1, 2, 3)),
    # Behind everything else: what follows would have a GradScaler, too.
    ("autocast fp16", {"torch_autocast": AUTOCAST_FP16}, (1, 2), (0, 1, 2, 3)),
    ("autocast fp16 overflows", {"torch_autocast": AUTOCAST_FP16}, (1, 2), (0, 1, 2, 3)),
    ("autocast fp16 as it is", {"torch_autocast": AUTOCAST_FP16, "gradient_clipping": 0}, (1, 2), (0, 1, 2, 3)),
    ("autocast fp16 accumulation", {"torch_autocast": AUTOCAST_FP16, "gradient_accumulation_steps": 3}, (2,),
     (0, 1, 2, 3)),
]


def uniform(first, count):
    """Numbers of [-0.5, 0.5) that fp32 holds exactly; the test computes the same ones."""
    k = torch.arange(first, first + count, dtype=torch.int64)
    bits = (k * 2654435761 + 12345) % 2**32
    bits = ((bits ^ (bits >> 15)) * 2246822519) % 2**32
    return ((bits >> 8).double() / 2**24 - 0.5).float()


class Model(torch.nn.Module):

    def __init__(self, odd=False, empty=False):
        super().__init__()
        self.odd = odd
        first = 0
        for i, (rows, columns) in enumerate(zip(WIDTHS, WIDTHS[1:])):
            weight = uniform(first, rows * columns).view(rows, columns) * 2
            first += rows * columns
            setattr(self, f"w{i}", torch.nn.Parameter(weight))
            if i < 2:
                setattr(self, f"b{i}", torch.nn.Parameter(uniform(first, columns)))
                first += columns
        if odd:
            self.w0.requires_grad_(False)
            self.z3 = torch.nn.Parameter(torch.empty(0, WIDTHS[2])) if empty else torch.empty(0, WIDTHS[2])
            self.u4 = torch.nn.Parameter(uniform(first, 20))

    def forward(self, x, y, factor=1.0):
        h = torch.tanh(x @ self.w0 + self.b0)
        h = torch.tanh(h @ self.w1 + self.b1)
        if self.odd:
            h = torch.cat([h @ self.w1, self.z3])
        return ((h @ self.w2).float() - y).square().mean() * factor


def batch(index, dtype):
    x = uniform(10**6 + index * MICRO_BATCH * WIDTHS[0], MICRO_BATCH * WIDTHS[0]) * 4
    y = uniform(10**7 + index * MICRO_BATCH * WIDTHS[-1], MICRO_BATCH * WIDTHS[-1]) * 4
    return x.view(MICRO_BATCH, -1).to(dtype), y.view(MICRO_BATCH, -1)


def grad_scaler_of(engine):
    return engine.torch_autocast_z0_gradscaler or getattr(engine.optimizer, "torch_autocast_gradscaler", None)


def scale_of(engine):
    if scaler := grad_scaler_of(engine):
        # It makes its tensor when it is first used.
        return scaler.get_scale()
    optimizer = engine.optimizer
    if hasattr(optimizer, "loss_scale_config"):
        return float(optimizer.loss_scale_config.cur_scale)
    return float(getattr(optimizer, "cur_scale", 1.0))


def unscale_by_the_old_scale(optimizer):
    holder = getattr(optimizer, "loss_scale_config", None) or getattr(optimizer, "loss_scaler", None)
    if holder is None or not hasattr(optimizer, "unscale_and_clip_grads"):
        return
    update, unscale = optimizer._update_scale, optimizer.unscale_and_clip_grads
    before = [1.0]

    def remember(*args):
        before[0] = holder.cur_scale
        update(*args)

    def with_old(*args):
        after, holder.cur_scale = holder.cur_scale, before[0]
        unscale(*args)
        holder.cur_scale = after

    optimizer._update_scale, optimizer.unscale_and_clip_grads = remember, with_old


def step_with_the_grad_scalers_scale(optimizer):
    scaler, step = optimizer.torch_autocast_gradscaler, optimizer.step

    def put_right(*args):
        optimizer.torch_autocast_gradscaler, optimizer.loss_scaler.cur_scale = None, scaler.get_scale()
        step(*args)
        optimizer.torch_autocast_gradscaler, optimizer.loss_scaler.cur_scale = scaler, 1.0
        torch._amp_update_scale_(scaler._scale, scaler._growth_tracker, torch.tensor(float(optimizer.overflow)),
                                 scaler.get_growth_factor(), scaler.get_backoff_factor(),
                                 scaler.get_growth_interval())

    optimizer.step = put_right


def whole(parameter):
    import deepspeed
    with deepspeed.zero.GatheredParameters([parameter]):
        return parameter.detach().clone()


def fp32_weights(engine):
    from deepspeed.utils import safe_get_full_fp32_param
    optimizer = engine.optimizer
    parameters = list(engine.module.parameters())
    if hasattr(optimizer, "fp32_groups"):
        groups = zip(optimizer.fp16_groups, optimizer.fp32_groups)
        masters = {id(p): master for group in groups for p, master in zip(*group)}
        parameters = [masters[id(p)] for p in parameters]
    elif engine.zero_optimization_stage() > 0:
        # At stage 3 a parameter that is not gathered has no elements but its ds_numel.
        parameters = [safe_get_full_fp32_param(p) if p.requires_grad and getattr(p, "ds_numel", p.numel()) else whole(p)
                      for p in parameters]
    return torch.cat([p.detach().float().flatten() for p in parameters])[::EVERY].tolist()


def train(name, config, world_size, rank, stage):
    import deepspeed
    config = json.loads(json.dumps(config))
    config["train_micro_batch_size_per_gpu"] = MICRO_BATCH
    config.setdefault("optimizer", json.loads(json.dumps(ADAM)))
    config.setdefault("zero_optimization", {})["stage"] = stage
    written = json.loads(json.dumps(config))
    written["zero_optimization"].pop("offload_optimizer", None)
    if config["optimizer"]["type"] in ("Adam", "AdamW") and not name.startswith("masters"):
        config["optimizer"]["params"]["torch_adam"] = True
    odd = name.startswith("odd")
    scale_wrt_gas = not name.startswith("gas unscaled")
    model = Model(odd, empty=stage < 3)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config,
                                           dist_init_required=False)
    unscale_by_the_old_scale(engine.optimizer)
    autocast_fp16 = config.get("torch_autocast") == AUTOCAST_FP16
    as_it_is = name.endswith("as it is")
    if autocast_fp16 and stage > 0 and not as_it_is:
        step_with_the_grad_scalers_scale(engine.optimizer)
    hot, factor = HOT.get(name, ([], 1.0))
    dtype = torch.bfloat16 if "bf16" in config else torch.float16 if "fp16" in config else torch.float32
    run = {"name": name, "world_size": world_size, "stage": stage, "config": written, "losses": [], "lrs": [],
           "betas": [], "scales": [], "skipped": [], "norms": [], "parameters": {}}
    accumulation = config.get("gradient_accumulation_steps", 1)
    micro_step = 0
    for step in range(STEPS):
        losses = []
        scale = scale_of(engine)
        run["lrs"].append(engine.get_lr()[0])
        run["betas"].append(engine.optimizer.param_groups[0].get("betas", [0])[0])
        for _ in range(accumulation):
            index = micro_step * world_size + rank
            loss = engine(*batch(index, dtype), factor if index in hot else 1.0)
            losses.append(loss.item())
            if stage == 0 and ("fp16" in config or not scale_wrt_gas):
                loss = loss * scale
            engine.backward(loss, scale_wrt_gas=scale_wrt_gas)
            engine.step()
            micro_step += 1
        mean = torch.tensor([sum(losses) / accumulation], dtype=torch.float64)
        torch.distributed.all_reduce(mean)
        run["losses"].append(mean.item() / world_size)
        run["scales"].append(scale)
        # At stage 0 the engine does not know what its GradScaler has done.
        applied = scale_of(engine) >= scale if autocast_fp16 else engine.was_step_applied()
        if not applied:
            run["skipped"].append(step)
        norm = engine.get_global_grad_norm()
        norm = None if norm is None or not applied else float(norm)
        if norm is not None and as_it_is:
            norm /= scale  # DeepSpeed reports the scaled norm
        if config["optimizer"]["type"] == "Muon":
            norm = None
        if norm is not None and stage == 0 and "fp16" in config:
            norm /= scale  # the unfused optimizer reports the scaled norm
        if norm is not None and stage == 3:
            norm *= scale_of(engine) / scale  # divided by the new scale
        run["norms"].append(norm)
        if step + 1 in (1, STEPS):
            run["parameters"][str(step + 1)] = fp32_weights(engine)
    if odd:
        run["odd"] = True
    if not scale_wrt_gas:
        run["scale_wrt_gas"] = False
    if hot:
        run.update(hot=hot, factor=factor)
    if len(set(run["betas"])) == 1:
        del run["betas"]
    run.update({key: once(run[key]) for key in ("lrs", "scales", "norms")})
    engine.destroy()
    return run


def work(rank, world_size, port, prefix, queue):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_SIZE=str(world_size),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    import deepspeed
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
    from deepspeed.runtime.zero.muon import original_muon
    original_muon.ns_compute_dtype = lambda method: torch.float32
    type(get_accelerator()).is_fp16_supported = lambda self: True
    FP16_UnfusedOptimizer.initialize_optimizer_states = lambda self: None
    deepspeed.init_distributed("gloo")
    for name, config, world_sizes, stages in RUNS:
        wanted = world_size in world_sizes and name.startswith(prefix)
        for stage in stages if wanted else ():
            run = train(name, config, world_size, rank, stage)
            if rank == 0:
                queue.append(run)
    torch.distributed.destroy_process_group()


def once(values):
    """A list of equal values as that value."""
    return values[0] if len(set(values)) == 1 else values


def shorten(value):
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [shorten(v) for v in value]
    if isinstance(value, dict):
        return {k: v if k in ("config", "lrs", "betas") else shorten(v) for k, v in value.items()}
    return value


def main():
    path = pathlib.Path(sys.argv[1])
    prefix = sys.argv[2] if len(sys.argv) > 2 else ""
    kept = [run for run in json.loads(path.read_text()) if not run["name"].startswith(prefix)] if prefix else []
    with mp.Manager() as manager:
        runs = manager.list()
        for world_size, port in ((1, 29641), (2, 29642)):
            mp.spawn(work, args=(world_size, port, prefix, runs), nprocs=world_size)
        text = ",\n".join(json.dumps(run) for run in kept + [shorten(run) for run in runs])
    path.write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
