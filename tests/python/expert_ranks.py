"""Experts that ranks have apart (MoE with ep_size above 1) against ep_size=1, for expert_ranks_test.py.

    expert_ranks.py dsrun                     on every rank of 2 or 4
"""

import shutil
import tempfile

import torch
from moe_cases import Model, tell_experts_apart
from records import RANK, WORLD

import deepspeed
from deepspeed.moe.layer import MoE
from deepspeed.pipe import PipelineModule
from deepspeed.utils import groups
from torch import nn

SIZES = [2] if WORLD == 2 else [2, 4]


def close(own, expected, what, relative=5e-6):
    own, expected = torch.as_tensor(own), torch.as_tensor(expected)
    assert torch.allclose(own, expected, rtol=relative, atol=1e-6), (what, RANK, own, expected)


def make_engine(ep_size, stage, data_first=False, seed=5, **more):
    torch.manual_seed(seed)
    model = Model(ep_size, num_experts=4)
    tell_experts_apart(model, data_first)
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5,
              "gradient_accumulation_steps": 2, "use_data_before_expert_parallelism": data_first,
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
              "optimizer": {"type": "AdamW", "params": {"lr": 0.02, "weight_decay": 0.1}}}
    return deepspeed.initialize(model=model, config=config | more)[0]


def train(engine, steps, first=0):
    """The losses of each micro-batch and the norm of each step."""
    losses, norms = [], []
    for step in range(first, first + steps):
        torch.manual_seed(1000 * step + RANK)
        for _ in range(2):
            loss = engine(torch.randint(16, (2, 8)))
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        norms.append(engine.get_global_grad_norm())
    return losses, norms


def own_experts(engine):
    """(name among all experts, parameter) of this rank's experts, and of all with ep_size=1."""
    for name, parameter in engine.module.named_parameters():
        if not getattr(parameter, "allreduce", True):
            yield parameter._dsrun_owner.name, parameter


def check_training():
    for stage in range(4):
        alone = make_engine(1, stage)
        losses, norms = train(alone, 3)
        for ep_size, data_first in [(size, False) for size in SIZES] + [(2, True)]:
            apart = make_engine(ep_size, stage, data_first)
            case = f"stage {stage}, ep_size {ep_size}{', data first' * data_first}"
            own_losses, own_norms = train(apart, 3)
            close(own_losses, losses, case + ", losses")
            close(own_norms, norms, case + ", norms", 2e-5)
            assert apart.native.parameter_count == alone.native.parameter_count
            apart.destroy()
        alone.destroy()


def check_values():
    """Weights, state and gradients of a rank's own experts, and the state dictionary of all."""
    utils = deepspeed.utils
    for stage in range(4):
        alone, apart = make_engine(1, stage), make_engine(2, stage)
        for engine in (alone, apart):
            train(engine, 2)
            for is_last in (False, True):
                torch.manual_seed(70 + RANK)
                engine.backward(engine(torch.randint(16, (2, 8))))
                if not is_last:
                    engine.step()
        get = {"weight": utils.safe_get_full_fp32_param, "gradient": utils.safe_get_full_grad,
               "exp_avg": lambda p: utils.safe_get_full_optimizer_state(p, "exp_avg")}
        expected = {what: {name: read(p).clone() for name, p in own_experts(alone)}
                    for what, read in get.items()}
        names = [name for name, _ in own_experts(apart)]
        assert len(names) == len(expected["weight"]) // 2
        for name, parameter in own_experts(apart):
            for what, read in get.items():
                close(read(parameter), expected[what][name], f"stage {stage}, {what} of {name}", 1e-4)
        states = [engine._zero3_consolidated_16bit_state_dict() for engine in (alone, apart)]
        if RANK == 0:
            assert states[0].keys() == states[1].keys() == alone.module.state_dict().keys()
            for name, value in states[0].items():
                close(states[1][name], value, name, 1e-4)
        alone.destroy()
        apart.destroy()


def check_writes():
    for stage in range(4):
        engine = make_engine(2, stage)
        (_, weight), *_ = own_experts(engine)
        first = groups._get_expert_data_parallel_group_ranks("ep_size_2")[0]
        with deepspeed.zero.GatheredParameters([weight, engine.module.head.weight], modifier_rank=0):
            weight.data.fill_(10.0 + RANK)
            engine.module.head.weight.data.fill_(20.0 + RANK)
        with deepspeed.zero.GatheredParameters(engine.module.parameters()):
            values = weight.flatten()[0].item(), engine.module.head.weight.flatten()[0].item()
            assert values == (10.0 + first, 20.0), (stage, RANK, values)
            weight.data.zero_()  # is undone
        assert deepspeed.utils.safe_get_full_fp32_param(weight).flatten()[0] == 10.0 + first
        deepspeed.utils.safe_set_full_fp32_param(weight, torch.full(weight.shape, 3.0 + first))
        with deepspeed.zero.GatheredParameters([weight]):
            assert weight.flatten()[0] == 3.0 + first, (stage, RANK)
        engine.destroy()


def check_checkpoints():
    """A checkpoint loads at another ep_size, stage and order of ranks."""
    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    torch.distributed.broadcast_object_list(folder)
    folder, = folder
    turns = [(2, 1, 1), (1, 2, 2), (2, 3, WORLD), (WORLD, 2, 1)]
    for number, (saved, stage, loaded) in enumerate(turns):
        tag, case = f"turn{number}", f"ep_size {saved} to {loaded}"
        engine = make_engine(saved, stage)
        train(engine, 2)
        engine.save_checkpoint(folder, tag)
        expected = train(engine, 2, 2)
        engine.destroy()
        other = make_engine(loaded, 3 - stage, seed=9, data_first=stage == 1)
        assert other.load_checkpoint(folder, tag)[0]
        losses, norms = train(other, 2, 2)
        close(losses, expected[0], case)
        close(norms, expected[1], case + ", norms", 2e-5)
        other.load_checkpoint(folder, tag, custom_load_fn=lambda src, dst: dst.load_state_dict(src))
        close(train(other, 2, 2)[0], expected[0], case + ", custom_load_fn")
        other.destroy()
    from deepspeed.utils.zero_to_fp32 import (get_fp32_state_dict_from_zero_checkpoint,
                                              load_state_dict_from_zero_checkpoint)
    saved = get_fp32_state_dict_from_zero_checkpoint(folder, "turn0")
    model = Model(2, num_experts=4)
    for layer in (model.first, model.second):
        layer.set_deepspeed_parallelism()
    model = load_state_dict_from_zero_checkpoint(model, folder, "turn0")
    index = 2 * groups._get_expert_parallel_rank("ep_size_2")
    name = "second.deepspeed_moe.experts.deepspeed_experts.{}.weight"
    assert torch.equal(model.state_dict()[name.format(1)], saved[name.format(index + 1)])
    torch.distributed.barrier()
    if RANK == 0:
        shutil.rmtree(folder)


def check_numbers_of_tokens():
    """Ranks with different numbers of tokens, and so of places."""
    torch.manual_seed(4)
    options = dict(num_experts=4, k=2, min_capacity=0, capacity_factor=0.6)
    alone = MoE(8, nn.Linear(8, 8), **options)
    torch.manual_seed(4)
    apart = MoE(8, nn.Linear(8, 8), ep_size=2, **options)
    apart.set_deepspeed_parallelism()
    tell_experts_apart(alone)
    tell_experts_apart(apart)
    results = []
    for layer in (alone, apart):
        torch.manual_seed(RANK)
        x = torch.randn(3 + 4 * RANK, 8).requires_grad_()
        output, l_aux, counts = layer(x)
        (output.square().sum() + l_aux).backward()
        results.append((output, x.grad, counts))
    for own, expected in zip(*results):
        close(own, expected, "numbers of tokens")


def expect(error, text, call):
    try:
        call()
    except error as raised:
        assert text in str(raised), raised
    else:
        raise AssertionError(f"no error: {text}")


def check_refusals():
    config = {"train_micro_batch_size_per_gpu": 2,
              "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}

    def initialize(*layers, model=None, **more):
        return lambda: deepspeed.initialize(model=model or nn.Sequential(*layers),
                                            config=config | more)

    def make(expert=None, ep_size=2):
        return MoE(4, expert or nn.Linear(4, 4), num_experts=12, ep_size=ep_size)

    expect(ValueError, "ep_size 3 does not divide", initialize(make(ep_size=3)))
    expect(ValueError, "has to divide the number of experts", lambda: make(ep_size=5))
    expect(NotImplementedError, "running_mean", initialize(make(nn.BatchNorm1d(4))))
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = nn.Sequential(make())
    expect(NotImplementedError, "make the model outside of it", initialize(model=model))
    pipeline = PipelineModule([make()], num_stages=1, loss_fn=nn.functional.mse_loss)
    expect(NotImplementedError, "in a PipelineModule", initialize(model=pipeline))
    expect(NotImplementedError, "with mics_shard_size",
           initialize(make(), use_data_before_expert_parallelism=True,
                      zero_optimization={"stage": 3, "mics_shard_size": 2}))
    if WORLD == 4:
        expect(NotImplementedError, "give all layers of a model the same ep_size",
               initialize(make(), make(ep_size=4)))
    expect(RuntimeError, "the ranks share no experts yet", lambda: make()(torch.ones(4, 4)))
    marked = nn.Linear(4, 4)
    marked.weight.allreduce, marked.weight.group_name = False, "ep_size_2"
    expect(NotImplementedError, "parameter 0.weight is marked as an expert's", initialize(marked))
    expect(ValueError, "there is no expert group ep_size_7",
           lambda: groups._get_expert_parallel_rank("ep_size_7"))


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    for check in (check_training, check_values, check_writes, check_checkpoints,
                  check_numbers_of_tokens, check_refusals):
        check()
        if RANK == 0:
            print(check.__name__, "ok", flush=True)


if __name__ == "__main__":
    main()
