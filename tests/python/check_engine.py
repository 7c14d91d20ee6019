"""Checks of the Python package on two ranks: losses against PyTorch, checkpoints, access, errors.

    dsrun --num_gpus 2 check_engine.py FOLDER

FOLDER is an empty folder that both ranks share. Ends with status 1 after a failed check, and prints
"all checks passed" otherwise.
"""

import copy
import os
import sys

import torch
from largest import find_largest
from losses import train_alone
from models import NAMES, loss_of, make_batch, make_model

import dsrun
from dsrun import utils, zero

RANK = int(os.environ["RANK"])
ADAMW = {"type": "AdamW",
         "params": {"lr": 2e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}}


def make_config(stage, **more):
    return {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "optimizer": ADAMW,
            "zero_optimization": {"stage": stage}, **more}


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def raises(kind, text, function):
    try:
        function()
    except kind as error:
        check(text in str(error), f"{error!r} does not say {text!r}")
        return
    raise AssertionError(f"no {kind.__name__} with {text!r}")


def run(engine, name, steps, first=0, user_backward=False):
    """Trains and returns (loss of this rank, norm) of each step."""
    results = []
    for step in range(first, first + steps):
        losses = []
        for micro in range(engine.gradient_accumulation_steps()):
            loss = loss_of(engine(**make_batch(name, RANK, step * 10 + micro)))
            loss.backward() if user_backward else engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        results.append((sum(losses) / len(losses), engine.get_global_grad_norm()))
    return results


def largest_difference(results, expected):
    check(len(results) == len(expected), "another number of steps")
    loss = find_largest(abs(a[0] - b["loss"]) / max(1.0, abs(b["loss"]))
                        for a, b in zip(results, expected))
    norm = find_largest(abs(a[1] - b["norm"]) / b["norm"] for a, b in zip(results, expected))
    return loss, norm


def losses_equal_pytorch():
    configs = [("", make_config(0)), ("accumulated and clipped ",
               make_config(0, gradient_accumulation_steps=2, gradient_clipping=0.5))]
    for name in NAMES:
        for text, config in configs if name in ("llama", "branches") else configs[:1]:
            expected = [line for line in train_alone(name, config, 4, ranks=2)
                        if line["rank"] == RANK]
            bits = None
            for stage in (0, 1, 2, 3):
                config["zero_optimization"]["stage"] = stage
                engine, *_ = dsrun.initialize(model=make_model(name), config=copy.deepcopy(config))
                results = run(engine, name, 4, user_backward=stage in (1, 3))
                engine.destroy()
                loss, norm = largest_difference(results, expected)
                check(loss < 2e-6 and norm < 4e-6,
                      f"{text}{name} at stage {stage}: losses differ by {loss}, norms by {norm}")
                bits = bits or [loss for loss, _ in results]
                # Sharded gradients are reduced after each micro-batch, others after the last.
                check(text or bits == [loss for loss, _ in results],
                      f"{text}{name}: stage {stage} has other bits than stage 0")


def train_two_losses(model, backward, step, once, ranks):
    """Two micro-batches of two losses each, with one forward pass for both or one for each."""
    for micro in range(2):
        outputs = []
        for rank in ranks:
            x = torch.randn(2, 4, generator=torch.Generator().manual_seed(10 * micro + rank))
            first = model(x)
            outputs.append((first.square().mean(), (first if once else model(x)).abs().mean()))
        for index, loss in enumerate(sum(each) / len(ranks) for each in zip(*outputs)):
            backward(loss, once and index == 0)
        step()


def losses_of_a_micro_batch_are_one():
    """As in DeepSpeed: each step() ends a micro-batch, however many backward passes it has had."""
    for once in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
        alone = copy.deepcopy(model)
        train_two_losses(alone, lambda loss, keep: (loss / 2).backward(retain_graph=keep),
                         lambda: None, once, range(2))
        torch.optim.SGD(alone.parameters(), lr=0.1).step()
        for stage in (0, 1, 2, 3):
            config = make_config(stage, gradient_accumulation_steps=2,
                                 optimizer={"type": "SGD", "params": {"lr": 0.1}})
            engine, *_ = dsrun.initialize(model=copy.deepcopy(model), config=config)
            train_two_losses(engine, engine.backward, engine.step, once, [RANK])
            check((engine.global_steps, engine.micro_steps) == (1, 2),
                  f"stage {stage}: {engine.global_steps} steps of {engine.micro_steps} micro-batches")
            values = weights_of(engine.module)
            for name, parameter in alone.named_parameters():
                torch.testing.assert_close(values[name], parameter.detach(), rtol=2e-6, atol=2e-7)
            engine.destroy()


def checkpoints_continue(folder):
    whole, *_ = dsrun.initialize(model=make_model("llama"), config=make_config(3))
    expected = run(whole, "llama", 3)
    whole.save_checkpoint(folder, client_state={"epoch": 4})
    check(os.path.isfile(os.path.join(folder, "latest")), "no file latest")
    expected += run(whole, "llama", 2, first=3)
    whole.destroy()
    for stage in (3, 1):
        engine, *_ = dsrun.initialize(model=make_model("llama"), config=make_config(stage))
        path, client = engine.load_checkpoint(folder)
        check(path.endswith("global_step3") and client == {"epoch": 4}, f"{path}, {client}")
        check(engine.global_steps == 3, "the steps are not counted on")
        check(run(engine, "llama", 2, first=3) == expected[3:], f"stage {stage} continues otherwise")
        engine.destroy()
    path, client = None, None
    engine, *_ = dsrun.initialize(model=make_model("llama"), config=make_config(2))
    check(engine.load_checkpoint(os.path.join(folder, "nothing")) == (None, {}), "found nothing?")
    engine.destroy()


def weights_of(model):
    with zero.GatheredParameters(model.parameters()):
        return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(values, expected):
    return values.keys() == expected.keys() and \
        all(torch.equal(values[name], expected[name]) for name in values)


def make_other(stage, frozen=()):
    """An engine with other weights than make_model's, after one step."""
    model = make_model("llama")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    engine, *_ = dsrun.initialize(model=model, config=make_config(stage))
    run(engine, "llama", 1, first=8)
    return engine


def checkpoints_load_in_part(folder):
    source, *_ = dsrun.initialize(model=make_model("llama"), config=make_config(3))
    run(source, "llama", 3)
    source.save_checkpoint(folder)
    saved = weights_of(source.module)
    source.destroy()
    for stage, steps, options in ((3, 1, {"load_module_only": True}),
                                  (1, 3, {"load_optimizer_states": False}),
                                  (2, 3, {"load_lr_scheduler_states": False})):
        engine = make_other(stage)
        name, weight = "model.norm.weight", engine.module.model.norm.weight
        before = utils.safe_get_full_optimizer_state(weight, "exp_avg")
        engine.load_checkpoint(folder, **options)
        after = utils.safe_get_full_optimizer_state(weight, "exp_avg")
        check(same(weights_of(engine.module), saved), f"{options}: other weights")
        check(engine.global_steps == steps, f"{options}: {engine.global_steps} steps")
        keeps = "load_lr_scheduler_states" not in options
        check(torch.equal(before, after) == keeps, f"{options}: the optimizer's state")
        check(torch.equal(utils.safe_get_full_fp32_param(weight), saved[name]), "another master")
        run(engine, "llama", 1)
        engine.destroy()

    def halve(src, dst):
        check(set(src) >= set(saved) and torch.equal(src[name], saved[name]), "another source")
        dst.get_parameter(name).copy_(src[name] / 2)

    engine = make_other(3)
    expected = weights_of(engine.module) | {name: saved[name] / 2}
    engine.load_checkpoint(folder, load_module_only=True, custom_load_fn=halve)
    check(same(weights_of(engine.module), expected), "custom_load_fn has loaded otherwise")
    raises(RuntimeError, "of the user", lambda: engine.load_checkpoint(
        folder, custom_load_fn=lambda src, dst: (_ for _ in ()).throw(RuntimeError("of the user"))))
    engine.destroy()


def frozen_weights_can_be_left_out(folder):
    frozen = ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight")
    source = make_other(3, frozen)
    run(source, "llama", 2)
    saved = weights_of(source.module)
    source.save_checkpoint(folder, tag="trained", exclude_frozen_parameters=True)
    source.destroy()
    engine, *_ = dsrun.initialize(model=make_model("llama"), config=make_config(1))
    own = weights_of(engine.module)
    raises(KeyError, frozen[0], lambda: engine.load_checkpoint(folder))
    engine.destroy()
    engine = make_other(1, frozen)
    raises(ValueError, "load_module_strict=False", lambda: engine.load_checkpoint(folder))
    engine.load_checkpoint(folder, load_module_strict=False)
    loaded = weights_of(engine.module)
    check(all(torch.equal(loaded[name], own[name] / 2 if name in frozen else saved[name])
              for name in saved), "other weights")
    check(engine.global_steps == 3, "the steps are not counted on")
    engine.destroy()


def frozen_weights_are_loaded_next_to_custom_load_fn(folder):
    """As DeepSpeed does at stages 2 and 3; at others, the function has to."""
    frozen = "model.embed_tokens.weight"
    source = make_other(3, (frozen,))
    source.save_checkpoint(folder)
    saved = weights_of(source.module)
    source.destroy()
    for stage in (1, 2, 3):
        engine = make_other(stage, (frozen,))
        with zero.GatheredParameters(engine.module.get_parameter(frozen), modifier_rank=0):
            engine.module.get_parameter(frozen).data.zero_()
        engine.load_checkpoint(folder, load_module_only=True, custom_load_fn=lambda src, dst: src.clear())
        loaded = weights_of(engine.module)[frozen]
        check(torch.equal(loaded, saved[frozen] if stage >= 2 else torch.zeros_like(loaded)),
              f"custom_load_fn at stage {stage}: other frozen weights")
        engine.destroy()


def an_engine_without_optimizer_evaluates(folder):
    batch = make_batch("llama", RANK, 0)
    for stage, bf16 in ((3, False), (3, True), (1, True)):
        path = os.path.join(folder, f"{stage}-{bf16}")
        more = {"bf16": {"enabled": True}} if bf16 else {}
        plain = make_model("llama").to(torch.bfloat16 if bf16 else torch.float32)
        config = make_config(stage, **more)
        trained, *_ = dsrun.initialize(model=make_model("llama"), config=config)
        run(trained, "llama", 2)
        trained.save_checkpoint(path, tag="trained")
        weights = weights_of(trained.module)
        del config["optimizer"]
        engine, optimizer, *_ = dsrun.initialize(model=make_model("llama"), config=config)
        check(optimizer is None, "an optimizer")
        used = engine.native.memory_bytes
        check(used["gradients"] == used["optimizer_state"] == used["master_weights"] == 0,
              f"memory for training: {used}")
        whole = sum(p.numel() * p.element_size() for p in plain.parameters())
        share = whole if stage == 1 else whole / 2
        check(share <= used["parameters"] < share + 4096, f"{used['parameters']} of {whole} bytes")
        loss = engine(**batch).loss
        check(not loss.requires_grad, "it records a graph")
        if not bf16:  # in bf16, plain has rounded its buffers
            check(torch.equal(loss, plain(**batch).loss), "another loss")
        engine.save_16bit_model(path)
        engine.save_checkpoint(path, tag="own")
        file = torch.load(os.path.join(path, "pytorch_model.bin"))
        check(same({k: file[k] for k in weights}, dict(plain.named_parameters())), "another file")
        engine.load_checkpoint(path, tag="trained")
        check(same(weights_of(engine.module), weights), "the trained weights are not loaded")
        engine.load_checkpoint(path, tag="own")
        check(same(weights_of(engine.module), dict(plain.named_parameters())), "not its own")
        raises(ValueError, "load_module_only=True",
               lambda: trained.load_checkpoint(path, tag="own"))
        trained.load_checkpoint(path, tag="own", load_module_only=True)
        check(same(weights_of(trained.module), dict(plain.named_parameters())), "not loaded")
        check(trained.global_steps == 2, "steps of the checkpoint")
        trained.destroy()
        engine.destroy()


def weights_can_be_read_and_written():
    for stage in (0, 2, 3):
        model = make_model("llama")
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        engine, *_ = dsrun.initialize(model=model, config=make_config(stage))
        name, weight = "model.norm.weight", model.model.norm.weight
        if stage == 3:
            raises(RuntimeError, f"parameter {name} is sharded", lambda: weight.sum())
        with zero.GatheredParameters(model.parameters()):
            for key, parameter in model.named_parameters():
                check(torch.equal(parameter, before[key]), f"{key} is not what it was")
        with zero.GatheredParameters(weight, modifier_rank=0):
            if RANK == 0:
                with torch.no_grad():
                    weight.fill_(3.0)
        check(utils.safe_get_full_fp32_param(weight).eq(3.0).all(), "the master was not written")
        check(utils.safe_get_full_grad(weight) is None, "a gradient before any")
        loss = loss_of(engine(**make_batch("llama", RANK, 0)))
        engine.backward(loss)
        check(utils.safe_get_full_grad(weight).abs().sum() > 0, "no gradient")
        engine.step()
        state = utils.safe_get_full_optimizer_state(weight, "exp_avg")
        check(state.shape == weight.shape and state.abs().sum() > 0, "no state")
        utils.safe_set_full_fp32_param(weight, torch.ones_like(state))
        full = engine._zero3_consolidated_16bit_state_dict()
        if RANK == 0:
            check(full[name].eq(1.0).all(), "the export has another value")
            check(set(full) == set(make_model("llama").state_dict()), "another state_dict")
        engine.destroy()


def parameters_of_two_engines_are_gathered_together():
    """As TRL's SyncRefModelCallback does, for models with the same names."""
    for stage in (2, 3):
        engines = [dsrun.initialize(model=make_model("llama"), config=make_config(stage))[0]
                   for _ in range(2)]
        trained, reference = (engine.module for engine in engines)
        run(engines[0], "llama", 1)
        both = [*trained.parameters(), *reference.parameters()]
        with zero.GatheredParameters(both, modifier_rank=0), torch.no_grad():
            if RANK == 0:
                for own, other in zip(trained.parameters(), reference.parameters()):
                    other.copy_(own)
        check(same(weights_of(reference), weights_of(trained)), f"not alike at stage {stage}")

        def fail(both=both):
            with zero.GatheredParameters(both, modifier_rank=0), torch.no_grad():
                both[-1].fill_(1)
                if RANK == 1:
                    raise KeyError("of rank 1")
        raises((RuntimeError, KeyError)[RANK], "of rank 1", fail)
        check(same(weights_of(reference), weights_of(trained)), "an exception kept changes")

        def write(module, args, both=both):
            with zero.GatheredParameters(both, modifier_rank=0):
                pass
        hook = trained.model.register_forward_pre_hook(write)
        raises(NotImplementedError, "write parameters between passes",
               lambda: run(engines[0], "llama", 1))
        hook.remove()
        for engine in engines:
            engine.destroy()


def generation_works_while_sharded():
    plain = make_model("llama").eval()
    engine, *_ = dsrun.initialize(model=make_model("llama"), config=make_config(3))
    engine.eval()
    prompt = torch.arange(6).view(1, 6)
    options = dict(max_new_tokens=8, do_sample=False, pad_token_id=0)
    check(torch.equal(engine.module.generate(prompt, **options),
                      plain.generate(prompt, **options)), "other tokens")
    engine.train()
    run(engine, "llama", 1)
    engine.destroy()


def one_rank_generates_with_gathered_parameters():
    """As TRL's online trainers do, which take the engine's hooks off at stage 3."""
    prompt = torch.arange(6).view(1, 6)
    options = dict(max_new_tokens=8, do_sample=False, pad_token_id=0)
    expected = make_model("llama").eval().generate(prompt, **options)
    results = []
    for stage, removes in ((2, False), (3, False), (3, True)):
        engine, optimizer, *_ = dsrun.initialize(model=make_model("llama"),
                                                 config=make_config(stage))
        check(hasattr(optimizer, "parameter_offload") == (stage == 3), "parameter_offload")
        with zero.GatheredParameters(engine.parameters()):
            if removes:
                offload = optimizer.parameter_offload
                check(not list(offload.module.ds_external_parameters()), "external parameters")
                for hook in offload.forward_hooks + offload.backward_hooks:
                    hook.remove()
                offload.forward_hooks, offload.backward_hooks = [], []
            if RANK == 0:
                check(torch.equal(engine.module.generate(prompt, **options), expected), "tokens")
            if removes:
                offload._register_deepspeed_module(offload.module)
        results.append(run(engine, "llama", 2))
        engine.destroy()
    check(results[0] == results[1] == results[2], "trains otherwise after it")


def schedulers_and_optimizers_of_pytorch_work():
    results = {}
    for kind in ("config", "client"):
        model = make_model("llama")
        if kind == "config":
            engine, *_ = dsrun.initialize(model=model, config=make_config(2))
        else:
            groups = [{"params": list(model.parameters()), "weight_decay": 0.01}]
            optimizer = torch.optim.AdamW(groups, lr=2e-3)
            config = make_config(2)
            del config["optimizer"]
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
            engine, *_ = dsrun.initialize(model=model, config=config, optimizer=optimizer,
                                          lr_scheduler=scheduler)
        results[kind] = run(engine, "llama", 3)
        engine.destroy()
    check(results["config"] == results["client"], "torch.optim.AdamW trains otherwise")
    model = make_model("llama")
    raises(NotImplementedError, "Rprop", lambda: dsrun.initialize(
        model=model, config=make_config(1), optimizer=torch.optim.Rprop(model.parameters())))
    some = list(model.parameters())[:2]
    raises(ValueError, "is in no parameter group", lambda: dsrun.initialize(
        model=model, config=make_config(1), optimizer=torch.optim.AdamW(some, lr=1e-3)))
    raises(ValueError, "zero_optimization.stage", lambda: dsrun.initialize(
        model=model, config=make_config(7)))


def an_exception_in_forward_leaves_the_engine_usable():
    engine, *_ = dsrun.initialize(model=make_model("llama"), config=make_config(3))
    other, *_ = dsrun.initialize(model=make_model("llama"), config=make_config(3))
    handle = engine.module.model.layers[1].mlp.register_forward_hook(
        lambda *_: (_ for _ in ()).throw(KeyError("of the user")))
    raises(KeyError, "of the user", lambda: engine(**make_batch("llama", RANK, 9)))
    handle.remove()
    check(run(engine, "llama", 2) == run(other, "llama", 2), "trains otherwise after it")
    engine.destroy()
    other.destroy()


def many_engines_leave_nothing():
    import resource

    def make(count):
        for _ in range(count):
            engine, *_ = dsrun.initialize(model=torch.nn.Linear(512, 512), config=make_config(3))
            engine.backward(engine(torch.ones(2, 512)).sum())
            engine.step()
            engine.destroy()

    make(100)  # the allocator's free memory comes and goes by 20 MB until then
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    make(100)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # A rank's shard has 513 KiB, and its optimizer state twice as much.
    check(grown < 40_000, f"100 engines hold {grown} KiB")


def main():
    torch.set_num_threads(1)
    folders = [os.path.join(sys.argv[1], name) for name in ("whole", "part", "frozen", "evaluated",
                                                              "custom")]
    checks = [losses_equal_pytorch, losses_of_a_micro_batch_are_one, lambda: checkpoints_continue(folders[0]),
              lambda: checkpoints_load_in_part(folders[1]),
              lambda: frozen_weights_can_be_left_out(folders[2]),
              lambda: an_engine_without_optimizer_evaluates(folders[3]),
              lambda: frozen_weights_are_loaded_next_to_custom_load_fn(folders[4]),
              weights_can_be_read_and_written, parameters_of_two_engines_are_gathered_together,
              generation_works_while_sharded,
              one_rank_generates_with_gathered_parameters,
              schedulers_and_optimizers_of_pytorch_work,
              an_exception_in_forward_leaves_the_engine_usable, many_engines_leave_nothing]
    for one in checks:
        one()
    print("all checks passed", flush=True)


if __name__ == "__main__":
    main()
