"""Checks on two ranks what scripts do around an engine: hooks, recomputed activations, written weights.

    dsrun -n 2 check_hooks.py      ends with status 1 after a failed check
"""

import os

import torch
from models import loss_of, make_batch, make_model
from torch import nn

import dsrun
from dsrun import utils

RANK, RANKS, STEPS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), 3
CALLS = []


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def config_of(stage, **more):
    return {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0,
            "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}, **more}


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def batch_of(step, rank):
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(10 * step + rank))


def triple_the_gradient(parameter):
    CALLS.append(tuple(parameter.grad.shape))
    parameter.grad.mul_(3)


def remove_the_gradient(parameter):
    parameter.grad = None


HOOKS = {
    "register_hook": lambda model: model[0].weight.register_hook(lambda g: g * torch.arange(1.0, 5.0)),
    "post-accumulate": lambda model: model[0].weight.register_post_accumulate_grad_hook(triple_the_gradient),
    "post-accumulate, None": lambda model: model[0].weight.register_post_accumulate_grad_hook(remove_the_gradient),
    "forward pre-hook": lambda model: model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    "forward hook": lambda model: model[0].register_forward_hook(lambda module, args, output: output * 2),
    "backward pre-hook": lambda model: model[2].register_full_backward_pre_hook(lambda module, gs: (gs[0] * 2,)),
    "backward hook": lambda model: model[2].register_full_backward_hook(lambda module, gs, outputs: (gs[0] * 2,)),
}


def train_alone(put):
    """This rank's losses under PyTorch, with the mean gradients of all ranks."""
    model = make()
    put(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        each = [model(batch_of(step, rank)).square().mean() for rank in range(RANKS)]
        (sum(each) / RANKS).backward()
        optimizer.step()
        losses.append(each[RANK].item())
    return losses


def train(put, stage, before):
    model = make()
    if before:
        put(model)
    engine, *_ = dsrun.initialize(model=model, config=config_of(stage))
    if not before:
        put(engine.module)
    losses = []
    for step in range(STEPS):
        loss = engine(batch_of(step, RANK)).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    return losses


def hooks_of_the_user_take_effect():
    plain = train_alone(lambda model: None)
    for name, put in HOOKS.items():
        expected = train_alone(put)
        check(expected != plain, f"{name} changes nothing in PyTorch")
        for stage in range(4):
            for before in (True, False):
                CALLS.clear()
                losses = train(put, stage, before)
                torch.testing.assert_close(losses, expected, rtol=2e-6, atol=2e-7, msg=lambda text: (
                    f"{name} at stage {stage}, {before=}: {losses}, PyTorch {expected}"))
                check(name != "post-accumulate" or CALLS == [(6, 4)] * STEPS, f"{CALLS} at stage {stage}")


def transformers_recompute_activations():
    """gradient_checkpointing_enable changes no bit, and the layers run twice a step."""
    for stage in (0, 2, 3):
        expected = None
        for reentrant in (None, False, True):
            model = make_model("llama")
            if reentrant is not None:
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
                model.enable_input_require_grads()
            calls = []
            model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
            engine, *_ = dsrun.initialize(model=model, config=config_of(stage))
            losses = []
            for step in range(STEPS):
                loss = loss_of(engine(**make_batch("llama", RANK, step)))
                engine.backward(loss)
                engine.step()
                losses.append(loss.item())
            engine.destroy()
            expected = expected or losses
            check(losses == expected, f"stage {stage}, {reentrant=}: {losses}, without {expected}")
            check(len(calls) == STEPS * (1 if reentrant is None else 2), f"stage {stage}, {reentrant=}: {len(calls)}")


def written_weights_are_those_of_the_next_forward():
    for stage in range(4):
        engine, *_ = dsrun.initialize(model=make(), config=config_of(stage))
        weight, part = engine.module[0].weight, engine.module[2].bias
        utils.safe_set_full_fp32_param(weight, utils.safe_get_full_fp32_param(weight) + 0.5)
        utils.safe_set_local_fp32_param(part, utils.safe_get_local_fp32_param(part) - 0.5)
        expected = make()
        with torch.no_grad():
            expected[0].weight.add_(0.5)
            expected[2].bias.sub_(0.5)
        torch.testing.assert_close(engine(batch_of(0, RANK)), expected(batch_of(0, RANK)), rtol=0.0, atol=0.0)
        engine.destroy()


def loss_backward_is_refused_in_fp16():
    for stage in (0, 3):
        engine, *_ = dsrun.initialize(model=make(), config=config_of(stage, fp16={"enabled": True}))
        try:
            engine(batch_of(0, RANK).half()).float().square().mean().backward()
        except RuntimeError as error:
            check("call engine.backward(loss)" in str(error), f"{error}")
        else:
            raise AssertionError("loss.backward() in fp16: no error")
        engine.destroy()


def main():
    torch.set_num_threads(1)
    for one in (hooks_of_the_user_take_effect, transformers_recompute_activations,
                written_weights_are_those_of_the_next_forward, loss_backward_is_refused_in_fp16):
        one()
    print("all checks passed", flush=True)


if __name__ == "__main__":
    main()
