"""Training in fp16: losses, skipped steps and the loss scale, for symbols_test.py.

    fp16_cases.py ENGINE                      with ENGINE dsrun or deepspeed, on every rank

Prints a record per case. What is done to DeepSpeed, and why:
- It trains in fp16 on this CPU although it asks for hardware support: it is told yes.
- At stage 0 engine.backward does not scale the loss, but the optimizer unscales: the script scales.
- On a step after which the scale grows, it divides the gradients by the new scale: by the old one here.
- At stage 0 the optimizer steps once with zero gradients when it is built: it is kept from doing so.
"""

import torch
from records import ENGINE, RANK, log

import deepspeed
from torch import nn

STEPS = 9
# The first steps overflow. Stage 0 halves the scale at each of them; stages 1 to 3 give the first away.
MOVING = {"initial_scale_power": 20, "loss_scale_window": 2}
CASES = {
    "moving scale": (MOVING, (0, 1, 2, 3)),
    "hysteresis 1": ({**MOVING, "hysteresis": 1}, (0, 2, 3)),
    "hysteresis 3, consecutive": ({**MOVING, "hysteresis": 3, "consecutive_hysteresis": True}, (1, 3)),
    "defaults": ({}, (0, 1, 2, 3)),
    "static": ({"loss_scale": 512}, (0, 1, 2, 3)),
    "static too large": ({"loss_scale": 2**20}, (0, 3)),
    "minimum": ({"initial_scale_power": 20, "hysteresis": 1, "min_loss_scale": 2**19}, (0, 1, 3)),
    "auto_cast": ({"auto_cast": True, "initial_scale_power": 8}, (0, 3)),
}


def keep_deepspeed_from_its_faults():
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer

    type(get_accelerator()).is_fp16_supported = lambda self: True
    FP16_UnfusedOptimizer.initialize_optimizer_states = lambda self: None


def unscale_by_the_old_scale(optimizer):
    holder = getattr(optimizer, "loss_scale_config", None) or optimizer.loss_scaler
    update, unscale = optimizer._update_scale, optimizer.unscale_and_clip_grads
    before = []

    def remember(*args):
        before[:] = [holder.cur_scale]
        update(*args)

    def with_old(*args):
        after, holder.cur_scale = holder.cur_scale, before[0]
        unscale(*args)
        holder.cur_scale = after

    optimizer._update_scale, optimizer.unscale_and_clip_grads = remember, with_old


def make_engine(fp16, stage):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "fp16": {"enabled": True, **fp16},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.02, "weight_decay": 0.1, "torch_adam": True}},
        # Else DeepSpeed's sum of two ranks overflows at stage 0 where the mean does not.
        "prescale_gradients": stage == 0,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}})
    if ENGINE == "deepspeed":
        unscale_by_the_old_scale(engine.optimizer)
    return engine


def scale_of(engine):
    config = getattr(engine.optimizer, "loss_scale_config", None)  # of DeepSpeed at stage 0
    return float(engine.optimizer.cur_scale if config is None else config.cur_scale)


def train(engine, dtype):
    """{"losses", "scales", "overflows", "skipped", "applied"} of each step, and what the last one raised."""
    steps = {"losses": [], "scales": [scale_of(engine)], "overflows": [], "skipped": [], "applied": [], "raised": False}
    for step in range(STEPS):
        x = 4 * torch.randn(2, 8, generator=torch.Generator().manual_seed(100 * step + RANK))
        loss = (engine(x.to(dtype)).float() - 1.0).square().mean()
        steps["losses"].append(loss.item())
        if ENGINE == "deepspeed" and engine.zero_optimization_stage() == 0:
            loss = loss * scale_of(engine)
        engine.backward(loss)
        try:
            engine.step()
        except Exception as error:
            assert "minimum" in str(error), error
            steps["raised"] = True
            break
        steps["scales"].append(scale_of(engine))
        steps["overflows"].append(bool(engine.optimizer.overflow))
        steps["skipped"].append(engine.skipped_steps)
        steps["applied"].append(engine.was_step_applied())
    return steps


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    if ENGINE == "deepspeed":
        keep_deepspeed_from_its_faults()
    for name, (fp16, stages) in CASES.items():
        for stage in stages:
            engine = make_engine(fp16, stage)
            dtype = torch.float32 if fp16.get("auto_cast") else torch.float16
            steps = train(engine, dtype)
            if not steps["raised"]:
                assert engine.fp16_enabled()
                steps["global_steps"] = engine.global_steps
            log(f"fp16 {name}, stage {stage}", **steps)
            engine.destroy()


if __name__ == "__main__":
    main()
