"""Checks of PipelineModule: losses against PyTorch, tied layers, tuples, evaluation, checkpoints.

    dsrun --num_gpus 2 check_pipeline.py FOLDER

FOLDER is an empty folder that all ranks share. On 4 ranks each of the two stages has two copies. Ends with
status 1 after a failed check, and prints "all checks passed" otherwise.
"""

import os
import sys
from unittest import mock

import torch
from check_engine import check, raises
from torch import nn
from torch.nn import functional

import dsrun
from dsrun import groups
from dsrun.dataloader import RepeatingLoader
from dsrun.pipe import LayerSpec, PipelineError, PipelineModule, TiedLayerSpec
from dsrun.pipe_topology import PipeDataParallelTopology, ProcessTopology

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
VOCABULARY, WIDTH, GAS, STEPS = 13, 8, 4, 4
ADAMW = {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.01}}


class Embed(nn.Module):
    """Takes tokens, and returns (hidden, mask, twice): tensors with and without gradients."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(VOCABULARY, WIDTH) * 0.3)

    def forward(self, tokens):
        hidden = functional.embedding(tokens, self.weight)
        return hidden, tokens > 2, hidden * 2


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift, self.drop = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, inputs):
        hidden, mask, twice = inputs
        hidden = hidden + 0.5 * twice
        mixed = self.drop(torch.tanh(self.lift(hidden))) * mask.unsqueeze(-1)
        return hidden + mixed, mask, twice


def project(embed, inputs):
    return inputs[0] @ embed.weight.t()


def loss_of(logits, labels):
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def make_layers():
    return [TiedLayerSpec("embed", Embed), LayerSpec(Mix), LayerSpec(Mix), LayerSpec(Mix),
            TiedLayerSpec("embed", Embed, forward_fn=project)]


def make_batch(copy, number):
    generator = torch.Generator().manual_seed(100 * number + copy)
    tokens = torch.randint(0, VOCABULARY, (2, 6), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def batches(copy, first=0):
    number = first
    while True:
        yield make_batch(copy, number)
        number += 1


def train_alone(copies):
    """The losses of PyTorch's training of the same model, and of its evaluation at the end."""
    modules = []
    for index, spec in enumerate(make_layers()[:-1]):
        torch.manual_seed(1234 + index)
        modules.append(spec.build())
    parameters = [p for module in modules for p in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.01)

    def loss_at(step):
        losses = []
        for number in range(step * GAS, step * GAS + GAS):
            for copy in range(copies):
                value, labels = make_batch(copy, number)
                for module in modules:
                    value = module(value)
                losses.append(loss_of(project(modules[0], value), labels))
        return torch.stack(losses).mean()

    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_at(step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return losses, loss_at(0).item()


def make_engine(stages, zero=0, optimizer=ADAMW, layers=None, section=None, **options):
    options = {"loss_fn": loss_of, "seed_layers": True, **options}
    module = PipelineModule(layers or make_layers(), num_stages=stages, **options)
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": GAS,
              "gradient_clipping": 0.0, "zero_optimization": {"stage": zero},
              "pipeline": section or {}}
    if optimizer is not None:
        config["optimizer"] = optimizer
    engine, *_ = dsrun.initialize(model=module, config=config)
    return engine


def train(engine, steps=STEPS, first=0):
    data = batches(engine.grid.get_data_parallel_rank(), first * GAS)
    return [engine.train_batch(data).item() for _ in range(steps)]


def evaluate(engine, **options):
    return engine.eval_batch(batches(engine.grid.get_data_parallel_rank()), **options)


def is_near(found, expected):
    return all(abs(a - b) < 1e-6 * max(1.0, abs(b)) for a, b in zip(found, expected, strict=True))


def losses_equal_pytorch():
    for stages in sorted({1, 2, WORLD}):
        expected, evaluated = train_alone(WORLD // stages)
        for options in ({}, {"zero": 1}, {"activation_checkpoint_interval": 2},
                        {"partition_method": "uniform"}, {"partition_method": r"type:(?:mix)\S*$"}):
            engine = make_engine(stages, **options)
            found = train(engine)
            check(is_near(found, expected), f"{stages} stages, {options}: {found}, {expected}")
            check(engine.global_steps == STEPS, "another number of steps")
            check(engine.global_samples == 2 * GAS * STEPS * (WORLD // stages), "other samples")
            found = evaluate(engine).item()
            check(is_near([found], [evaluated]), f"evaluated {found}, not {evaluated}")
            engine.destroy()


def evaluations_have_outputs():
    engine = make_engine(2)
    loss, logits = evaluate(engine, return_logits=True)
    check((logits is not None) == engine.is_last_stage(), "logits are the last stage's")
    only = evaluate(engine, bcast_loss=False)
    check((only is None) != engine.is_last_stage(), "bcast_loss=False")
    mean = evaluate(engine, compute_loss=False)
    every = evaluate(engine, compute_loss=False, reduce_output=None, num_micro_batches=2)
    if engine.is_last_stage():
        check(only.item() == loss.item(), "another loss")
        check(len(every) == 2 and every[0].shape == mean.shape == (2, 5, VOCABULARY), "outputs")
    check(train(engine) == train(make_engine(2)), "an evaluation changes the training")


def checkpoints_continue_on_other_stages(folder):
    whole = make_engine(2, zero=1)
    train(whole, 2)
    whole.save_checkpoint(folder, client_state={"epoch": 2})
    saved = whole._zero3_consolidated_16bit_state_dict()
    expected = train(whole, 2, first=2)
    again = make_engine(2)
    path, client = again.load_checkpoint(folder)
    check(client == {"epoch": 2} and again.global_steps == 2, f"{path}, {client}")
    check(is_near(train(again, 2, first=2), expected), "continues otherwise")
    state = again._zero3_consolidated_16bit_state_dict()
    if RANK == 0:
        check(set(state) == {"tied_modules.embed.weight"} | {
            f"{layer}.{name}" for layer in (1, 2, 3)
            for name in ("lift.weight", "lift.bias", "drop.weight", "drop.bias")}, f"{set(state)}")
    alone = make_engine(1)
    alone.load_checkpoint(folder)
    evaluated = evaluate(alone, num_micro_batches=3), evaluate(whole, num_micro_batches=3)
    check(alone.global_steps == 2 and all(loss.isfinite() for loss in evaluated), "one stage")
    loaded = alone._zero3_consolidated_16bit_state_dict()
    if RANK == 0:
        check(all(torch.equal(loaded[name], saved[name]) for name in saved), "one stage has others")


def frozen_parts_may_be_those_of_one_stage(folder):
    def make():
        module = PipelineModule([LayerSpec(nn.Linear, 4, 4), LayerSpec(nn.Linear, 4, 4)], loss_fn=nn.MSELoss(),
                                topology=PipeDataParallelTopology(2, WORLD // 2), partition_method="uniform")
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name not in ("0.weight", "1.bias"))
        return dsrun.initialize(model=module, config={
            "train_micro_batch_size_per_gpu": 2, "optimizer": ADAMW})[0]

    engine = make()
    state = engine._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters=True)
    if RANK == 0:
        check(set(state) == {"0.bias", "1.weight"}, f"{set(state)}")
    engine.save_checkpoint(folder, exclude_frozen_parameters=True)
    raises(ValueError, "load_module_strict=False", lambda: make().load_checkpoint(folder))
    make().load_checkpoint(folder, load_module_strict=False)


def stages_keep_their_groups(folder):
    """Also a stage without trained parameters."""
    def make(last_rate):
        module = PipelineModule([LayerSpec(nn.Linear, 4, 4), LayerSpec(nn.Linear, 4, 4)], loss_fn=nn.MSELoss(),
                                topology=PipeDataParallelTopology(2, WORLD // 2), partition_method="uniform")
        weight, bias = module.parameters()
        rate = 0.2 if module.mpu().get_pipe_parallel_rank() == 0 else last_rate
        groups = [{"params": [weight], "lr": 0.1}, {"params": [bias], "lr": rate}]
        return dsrun.initialize(model=module, optimizer=torch.optim.SGD(groups), config={
            "train_micro_batch_size_per_gpu": 2})[0]

    data = [(torch.ones(2, 4), torch.ones(2, 4))] * 2
    engine = make(0.4)
    engine.train_batch(iter(data))
    engine.save_checkpoint(folder)
    loaded = make(0.3)
    loaded.load_checkpoint(folder)
    loaded.train_batch(iter(data))
    rates = [0.1, 0.4 if loaded.is_last_stage() else 0.2]
    check(loaded.native.rates == loaded.get_lr() == rates, f"{loaded.get_lr()}, {rates} saved")
    without = make_engine(2, layers=[LayerSpec(nn.Linear, 4, 4), nn.Identity()], loss_fn=nn.MSELoss(),
                          partition_method="uniform")
    losses = [without.train_batch(iter(data * GAS)).item() for _ in range(2)]
    check(losses[1] < losses[0], f"{losses}")


class Counting(nn.Linear):
    """Assigns its buffer at each pass."""

    def __init__(self):
        super().__init__(4, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, inputs):
        self.calls = self.calls + 1
        return super().forward(inputs)


def exports_are_those_of_the_layers():
    data = [(torch.ones(2, 4), torch.ones(2, 4))] * GAS
    for stages in (1, 2):
        first, last = Counting(), Counting()
        engine = make_engine(stages, layers=[first, first, last, last], loss_fn=nn.MSELoss(),
                             partition_method="uniform")
        engine.train_batch(iter(data))
        state = engine._zero3_consolidated_16bit_state_dict()
        if RANK == 0:
            names = {f"{layer}.{name}" for layer in range(4) for name in ("weight", "bias", "calls")}
            check(set(state) == names and set(engine.module.state_dict()) <= names, f"{set(state)}")
            check(all(state[f"{layer}.calls"] == 2 * GAS for layer in range(4)), f"{state}")
    if engine.is_last_stage():
        last.weight = nn.Parameter(torch.ones(4, 4))
    raises(RuntimeError, "is not the engine's", engine._full_state_dict)
    raises(RuntimeError, "is not the engine's", lambda: engine.train_batch(iter(data)))


def data_and_rates_come_from_initialize():
    dataset = [(torch.full((4,), float(i)), torch.full((1,), float(i % 3))) for i in range(7)]
    layers = [LayerSpec(nn.Linear, 4, 4), torch.relu, LayerSpec(nn.Linear, 4, 1)]
    module = PipelineModule(layers, topology=PipeDataParallelTopology(2, WORLD // 2),
                            loss_fn=nn.MSELoss(), seed_layers=True)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    engine, _, loader, scheduler = dsrun.initialize(
        model=module, optimizer=optimizer, training_data=dataset,
        lr_scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
        config={"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})
    check(isinstance(loader, RepeatingLoader), "no loader")
    losses = [engine.train_batch().item() for _ in range(3)]
    check(losses[0] != losses[1] and engine.get_lr() == [0.0125], f"{losses}, {engine.get_lr()}")
    training = engine.data_iterator
    raises(StopIteration, "", lambda: engine.eval_batch(iter([])))
    check(engine.data_iterator is training, "an evaluation without data ends the training data")
    raises(StopIteration, "", lambda: engine.train_batch(iter([])))
    engine.train_batch(iter([(torch.ones(2, 4), torch.ones(2, 1))] * 3))
    check(scheduler.last_epoch == 4, "the schedule has another position")


def data_that_one_rank_lacks_are_an_error_of_all():
    def fail():
        raise OSError("sample 3 cannot be read")
        yield

    for stages in (1, 2):
        engine = make_engine(stages)
        copy = engine.grid.get_data_parallel_rank()
        # The ranks of the first and the last stage read data.
        for rank in (0, WORLD - 1):
            for run in (engine.train_batch, engine.eval_batch):
                raises(OSError if RANK == rank else RuntimeError, "sample 3 cannot be read",
                       lambda run=run, rank=rank: run(fail() if RANK == rank else batches(copy)))
                raises(StopIteration, "", lambda run=run, rank=rank: run(
                    iter([]) if RANK == rank else batches(copy)))
        check(is_near(train(engine, 2), train_alone(WORLD // stages)[0][:2]), "trains otherwise after them")


def evaluations_need_a_scalar():
    engine = make_engine(2, loss_fn=lambda logits, labels: logits)
    raises(ValueError if engine.is_last_stage() else RuntimeError, "the loss is no scalar", lambda: evaluate(engine))


def collectives_have_tensors_of_the_ranks_device():
    """A GPU has no part in it: collectives stop at once, and another device stands for the ranks'."""
    class Stopped(Exception):
        pass

    def stop(tensor, *args, **kwargs):
        raise Stopped(f"on {tensor.device}")

    engine = make_engine(1)
    with mock.patch("dsrun._native.broadcast", stop), mock.patch("dsrun._native.all_reduce", stop), \
            mock.patch("dsrun.comm.get_device", lambda: torch.device("meta")):
        raises(Stopped, "on meta", lambda: PipelineModule(make_layers(), num_stages=2))
        raises(Stopped, "on meta", lambda: engine._average([torch.ones(2)]))


def a_step_that_fails_in_its_middle_is_the_last():
    engine = make_engine(1)
    train(engine, 1)
    data = [make_batch(0, 0)] * (GAS + 1)
    engine.train_batch(iter(data[:GAS]))
    raises(StopIteration, "", lambda: engine.train_batch(iter(data[GAS:])))
    raises(RuntimeError, "within its micro-batches", lambda: train(engine, 1))


def groups_are_those_of_stages():
    engine, copies = make_engine(2), WORLD // 2
    first = RANK // copies * copies
    check(groups.mpu is engine.grid, "another grid")
    check(groups._get_data_parallel_group_ranks() == list(range(first, first + copies)), "another group")
    check(groups._get_data_parallel_world_size() == engine.dp_world_size == copies, "another size")
    raises(NotImplementedError, "sparse=True", lambda: make_engine(
        1, layers=[LayerSpec(nn.Embedding, 2, 2, sparse=True)]))
    check(groups.mpu is engine.grid, "a refused engine changes the grid")
    check(groups.get_model_parallel_world_size() == 2 and groups.get_model_parallel_rank() == engine.stage_id,
          "another model")
    dsrun.initialize(model=nn.Linear(2, 2), config={"train_micro_batch_size_per_gpu": 1})
    check(groups.mpu is None and groups._get_data_parallel_world_size() == WORLD, "the pipeline's groups stay")


def others_are_refused():
    engine = make_engine(2)
    for call in (engine, engine.forward, engine.backward, engine.step):
        raises(PipelineError, "Only train_batch() is accessible", lambda call=call: call(None))
    with torch.no_grad():
        raises(RuntimeError, "requires gradients", lambda: train(engine, 1))
    for zero in (2, 3):
        raises(ValueError, "ZeRO-2 and ZeRO-3 are incompatible", lambda: make_engine(2, zero=zero))
    raises(RuntimeError, "must divide", lambda: PipelineModule([], num_stages=WORLD + 1))
    raises(RuntimeError, "num_stages or topology", lambda: PipelineModule([]))
    if WORLD == 4:
        topology = ProcessTopology(["data", "pipe"], [2, 2])
        raises(NotImplementedError, "neighbours",
               lambda: PipelineModule(make_layers(), topology=topology))
    shared = nn.Linear(2, 2)
    raises(ValueError, "use TiedLayerSpec", lambda: PipelineModule(
        [shared, shared], num_stages=2, partition_method="uniform"))
    raises(NotImplementedError, "does not tie its parameter bias", lambda: PipelineModule(
        [TiedLayerSpec("a", nn.Linear, 2, 2), TiedLayerSpec("a", nn.Linear, 2, 2)], num_stages=2))
    raises(RuntimeError, "has no optimizer", lambda: train(make_engine(2, optimizer=None), 1))
    check(evaluate(make_engine(2, optimizer=None)).isfinite(), "no evaluation")


def sections_agree_with_the_module():
    for section in ({"stages": 5}, {"partition": "uniform"}, {"seed_layers": 1.5}, {"seed_layers": False},
                    {"activation_checkpoint_interval": "two"}, {"pipe_partitioned": "yes"}):
        raises(ValueError, f"pipeline.{next(iter(section))}",
               lambda section=section: make_engine(2, section=section))
    raises(ValueError, "it is a section", lambda: make_engine(2, section=[1]))
    engine = make_engine(2, section={"stages": 2, "partition": "parameters", "seed_layers": True,
                                     "activation_checkpoint_interval": 2, "typo": 1})
    check("pipeline.typo" in str(engine.native.warnings), f"{engine.native.warnings}")
    check(engine.module.activation_checkpoint_interval == 2, "another interval")
    make_engine(2, section={"stages": "auto", "partition": "best"})


def main():
    torch.set_num_threads(1)
    for one in (losses_equal_pytorch, evaluations_have_outputs,
                lambda: checkpoints_continue_on_other_stages(os.path.join(sys.argv[1], "whole")),
                lambda: frozen_parts_may_be_those_of_one_stage(os.path.join(sys.argv[1], "frozen")),
                lambda: stages_keep_their_groups(os.path.join(sys.argv[1], "groups")),
                exports_are_those_of_the_layers, data_and_rates_come_from_initialize,
                data_that_one_rank_lacks_are_an_error_of_all, collectives_have_tensors_of_the_ranks_device,
                a_step_that_fails_in_its_middle_is_the_last, groups_are_those_of_stages, others_are_refused,
                sections_agree_with_the_module,
                evaluations_need_a_scalar):  # ends the ranks' connections
        one()
    print("all checks passed", flush=True)


if __name__ == "__main__":
    main()
