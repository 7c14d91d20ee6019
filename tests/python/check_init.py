"""Checks of zero.Init on two ranks: losses as without it, access before an engine, its forms.

    dsrun --num_gpus 2 check_init.py FOLDER

FOLDER is an empty folder that both ranks share. Ends with status 1 after a failed check, and prints
"all checks passed" otherwise.
"""

import copy
import gc
import os
import sys

import torch
from check_engine import RANK, check, make_config, raises, run
from models import make_model

import dsrun.compat

dsrun.compat.install()

from dsrun import model_init, zero  # noqa: E402


def read_memory(key):
    """A figure of this process in MiB: VmRSS, or VmHWM, the highest."""
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    raise KeyError(key)


def no_rank_holds_the_model():
    dsrun.init_distributed()
    before = read_memory("VmRSS")
    with zero.Init():
        model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(48)])
    dsrun.initialize(model=model, config={"train_micro_batch_size_per_gpu": 1,
                                          "zero_optimization": {"stage": 3}})
    grown = read_memory("VmHWM") - before
    check(grown < 180, f"{grown} MiB for a model of 192 MiB")  # without zero.Init: 201


def held(model):
    """The elements that this rank holds of the model's parameters."""
    return sum(p.numel() + (p.ds_tensor.numel() if hasattr(p, "ds_tensor") else 0)
               for p in model.parameters())


def values_of(model):
    with zero.GatheredParameters(model.parameters()):
        return {name: p.detach().clone() for name, p in model.named_parameters()}


def losses_are_those_without_it():
    for name in ("llama", "gpt2", "shared"):
        plain = make_model(name)
        whole = {key: p.detach().clone() for key, p in plain.named_parameters()}
        for stage in (0, 1, 2, 3) if name == "llama" else (3,):
            with zero.Init():
                model = make_model(name)
            parts = sum(-(-value.numel() // 2) for value in whole.values())
            check(held(model) == parts, f"{name}: {held(model)} elements held, not {parts}")
            values = values_of(model)
            check(values.keys() == whole.keys() and
                  all(torch.equal(values[key], whole[key]) for key in whole),
                  f"{name}: other first values")
            engine, *_ = dsrun.initialize(model=model, config=make_config(stage))
            check(not any(hasattr(p, "ds_tensor") for p in model.parameters()), "parts remain")
            results = run(engine, name, 3)
            engine.destroy()
            engine, *_ = dsrun.initialize(model=make_model(name), config=make_config(stage))
            check(results == run(engine, name, 3), f"{name}: other losses at stage {stage}")
            engine.destroy()


def ranks_start_from_the_first_ranks_values():
    torch.manual_seed(100 + RANK)
    with zero.Init(config_dict_or_path={"bf16": {"enabled": True}}):
        layer = torch.nn.Linear(5, 3)
    torch.manual_seed(100)
    first = torch.nn.Linear(5, 3, dtype=torch.bfloat16)
    check(layer.weight.ds_shape == (3, 5) and layer.weight.ds_numel == 15, "another shape")
    check(layer.weight.dtype == torch.bfloat16 and layer.weight.shape == (0,), "not empty")
    check(layer.weight.ds_status is zero.ZeroParamStatus.NOT_AVAILABLE, "another status")
    check(torch.equal(values_of(layer)["weight"], first.weight), "not rank 0's values")


def parameters_can_be_written_before_an_engine():
    with zero.Init():
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 3))
    weight = model[0].weight
    with zero.GatheredParameters(weight, modifier_rank=1):
        with torch.no_grad():
            weight.fill_(RANK)
        raises(RuntimeError, "gathered already",
               lambda: zero.GatheredParameters(model[0].parameters()).__enter__())
    with zero.GatheredParameters(weight):
        with torch.no_grad():
            weight.fill_(5)
    check(values_of(model)["0.weight"].eq(1).all(), "modifier_rank's values were not kept")

    def write():
        with zero.GatheredParameters(weight, modifier_rank=0):
            weight.data.fill_(7)
            if RANK == 1:
                raise KeyError("of rank 1")
    raises((RuntimeError, KeyError)[RANK], "of rank 1", write)

    def reshape():
        with zero.GatheredParameters(weight, modifier_rank=0):
            weight.data = torch.ones(2, 2)
    raises(RuntimeError, "another shape", reshape)
    check(values_of(model)["0.weight"].eq(1).all(), "an exception kept changes")
    raises(ValueError, "zero_optimization.stage", lambda: dsrun.initialize(
        model=model, config=make_config(7)))
    check(values_of(model)["0.weight"].eq(1).all(), "a failed initialize() lost values")
    copied = copy.deepcopy(model)
    model[0].weight = torch.nn.Parameter(torch.full((3, 4), 2.0 + RANK))  # not sharded, not equal
    engine, *_ = dsrun.initialize(model=model, config=make_config(3))
    check(values_of(model)["0.weight"].eq(2).all(), "a parameter of its own is not rank 0's")
    engine.destroy()
    check(values_of(copied)["0.weight"].eq(1).all(), "the copy has no values of its own")


class Initialized(torch.nn.Module):
    """Initializes its children in its constructor, and ties two of them."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(3))
        self.encoder = torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(6, 2, 8), 2, enable_nested_tensor=False)
        self.register_buffer("table", torch.arange(6.0))
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.apply(self.initialize)
        torch.nn.init.zeros_(self.layers[0].bias)
        self.layers[2].weight = self.layers[1].weight

    def initialize(self, module):
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.xavier_normal_(module.weight)


def constructors_find_the_values_of_inner_modules():
    torch.manual_seed(3)
    plain = Initialized()
    torch.manual_seed(3)
    with zero.Init():
        model = Initialized()
    values = values_of(model)
    for key, value in plain.named_parameters():
        check(torch.equal(values[key], value), f"{key}: other values")
    check(model.layers[2].weight is model.layers[1].weight, "no longer tied")
    check(torch.equal(model.table, plain.table), "the buffer is another")
    check(len(values) == len(dict(plain.named_parameters())), "other parameters")


class Holder(torch.nn.Module):
    """Keeps a tensor that shares the memory of another module's parameter."""

    def __init__(self, layer):
        super().__init__()
        self.values = layer.weight.data


class Idioms(torch.nn.Module):
    """Uses the parameters of its inner modules in many ways, each of a layer of its own."""

    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(25))
        kept = self.layers[0].weight.data  # written at the end
        self.write_data(*self.layers[1:6])
        self.initialize(*self.layers[6:11])
        for parameter in self.layers[11].parameters():
            if parameter.dim() > 1:
                nn.init.constant_(parameter, 0.5)
            parameter.data.mul_(parameter.numel() + parameter.shape[0])
        with torch.no_grad():
            self.layers[12].weight.view(-1)[:3].zero_()
            torch._foreach_mul_([self.layers[13].weight, self.layers[14].weight.detach()], 3.0)
            torch.add(self.layers[13].bias, 1, out=self.layers[13].bias)
            self.layers[15].weight.copy_(self.layers[16].weight)
            self.layers[15].bias *= 4
            self.layers[16].weight[2:, 1] = 7
            self.layers[17].weight.t_()
        self.register_buffer("norm", self.layers[17].weight.detach().norm())
        self.read = nn.Parameter(self.layers[18].weight.sum().detach() * torch.ones(2))
        self.taken = nn.Parameter(self.layers[18].weight)
        self.layers[18] = copy.deepcopy(self.layers[17])
        self.layers[19].weight = nn.Parameter(torch.full((6, 6), 2.0))
        self.layers[20].load_state_dict(self.layers[19].state_dict())
        nn.utils.parametrizations.weight_norm(self.layers[21])
        self.layers[22].half()
        with zero.GatheredParameters(self.layers[14].weight, modifier_rank=0):
            self.layers[14].weight.data.add_(1)
        self.register_buffer("output", self.layers[23](torch.ones(2, 6)).detach())
        kept.normal_()
        holder = Holder(self.layers[24])
        holder.values.normal_()

    def write_data(self, filled, normal, replaced, reshaped, indexed):
        filled.weight.data.fill_(2)
        for module in normal.modules():
            module.weight.data.normal_()
        replaced.weight.data = torch.arange(36.0).view(6, 6)
        reshaped.weight.data = torch.ones(2, 6)
        indexed.weight.data[1].zero_()

    def initialize(self, kaiming, xavier, orthogonal, reset, truncated):
        torch.nn.init.kaiming_normal_(kaiming.weight)
        torch.nn.init.xavier_uniform_(tensor=xavier.weight)
        torch.nn.init.orthogonal_(orthogonal.weight)
        reset.reset_parameters()
        torch.nn.init.trunc_normal_(truncated.weight.data, std=0.1)


def constructors_use_inner_modules_as_without_it():
    def build():
        torch.manual_seed(4 + RANK)
        with zero.Init():
            return Idioms()

    torch.manual_seed(4)
    plain = Idioms()
    whole = dict(plain.named_parameters())
    limit = model_init._Touched.limit
    for model_init._Touched.limit in (limit, 0):
        model = build()
        values = values_of(model)
        check(values.keys() == whole.keys(), f"other parameters: {values.keys() ^ whole.keys()}")
        for key, value in whole.items():
            check(values[key].dtype == value.dtype and torch.equal(values[key], value),
                  f"{key}: other values")
        if RANK == 0:  # buffers stay those of each rank
            check(torch.equal(model.norm, plain.norm) and torch.equal(model.output, plain.output),
                  "other reads")
        parts = sum(-(-value.numel() // 2) for value in whole.values())
        check(held(model) == parts, f"{held(model)} elements held, not {parts}")
    model_init._Touched.limit = limit


def parameters_that_no_tensor_shares_are_sharded_early():
    class Counted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(20))
            self.first = [self.layers[0].weight.data] if RANK == 1 else None
            for layer in self.layers:
                layer.weight.data.fill_(3)
            self.gathered = [layer.weight.ds_status is zero.ZeroParamStatus.AVAILABLE
                             for layer in self.layers]

    limit, model_init._Touched.limit = model_init._Touched.limit, 3 * 8 * 8 * 4
    with zero.Init():
        model = Counted()
        check(sum(model.gathered) < 8, f"{sum(model.gathered)} of 20 are gathered")
        model.layers[1].weight.data.fill_(4)
    model_init._Touched.limit = limit
    values = values_of(model)
    check(all(values[f"layers.{i}.weight"].eq(4 if i == 1 else 3).all() for i in range(20)),
          "other values")


def tensors_given_to_sharded_parameters_are_not_lost_silently():
    with zero.Init():
        layer = torch.nn.Linear(3, 3)

        class Failing(torch.nn.Module):
            def __init__(self):
                super().__init__()
                layer.weight.data.fill_(6)
                raise KeyError("in a constructor")
        raises(KeyError, "in a constructor", Failing)
    check(values_of(layer)["weight"].eq(6).all(), "a failed constructor's values are lost")
    layer.weight.data = torch.ones(3, 3)
    raises(RuntimeError, "modifier_rank=0", lambda: values_of(layer))
    raises(RuntimeError, "modifier_rank=0", lambda: dsrun.initialize(
        model=layer, config=make_config(3)))


def contexts_nest_and_end(folder):
    def is_sharded(model):
        return hasattr(model.weight, "ds_tensor")

    constructor, apply = torch.nn.Linear.__init__, torch.nn.Module.apply
    with zero.Init(enabled=False):
        check(not is_sharded(torch.nn.Linear(3, 3)), "sharded, though not enabled")
    with zero.Init(dtype=torch.bfloat16):
        with zero.Init(dtype=torch.float32):
            inner = torch.nn.Linear(3, 3)

        class Late(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(3))
        check(is_sharded(torch.nn.Linear(3, 3)) and is_sharded(Late()), "not sharded")
    check(is_sharded(inner) and inner.weight.dtype == torch.bfloat16, "the outer dtype holds")

    def fail():
        with zero.Init(dtype=torch.bfloat16):
            raise KeyError("while building")
    raises(KeyError, "while building", fail)
    check(torch.nn.Linear.__init__ is constructor and torch.nn.Module.apply is apply and
          "__init_subclass__" not in vars(torch.nn.Module), "constructors stay replaced")
    check(torch.get_default_dtype() == torch.float32, "the dtype stays replaced")
    check(not is_sharded(torch.nn.Linear(3, 3)) and not hasattr(Late().weight, "ds_tensor"),
          "sharded after the end")
    layer = torch.nn.Linear(3, 3)
    zero.Init(module=layer, remote_device="cpu")
    check(is_sharded(layer), "module= was not sharded")
    offload = {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": folder}}
    with zero.Init(config_dict_or_path={"zero_optimization": offload}):
        layer = torch.nn.Linear(300, 300)
    check("dsrun-init-" in open("/proc/self/maps").read(), "the part is not in a file")
    dsrun.comm.barrier()  # another rank's file may still be there until its constructor ends
    check(not os.listdir(folder), "the file is left")
    check(values_of(layer)["bias"].abs().sum() > 0, "no values")
    del layer
    gc.collect()
    raises(ValueError, "nvme_path", lambda: zero.Init(remote_device="nvme"))
    raises(ValueError, "remote_device", lambda: zero.Init(remote_device="tape"))
    raises(NotImplementedError, "mpu", lambda: zero.Init(mpu=object()))


def models_of_transformers_load(folder):
    import transformers
    from transformers.integrations import HfDeepSpeedConfig

    dsrun.compat.init_distributed()
    for name, bf16 in (("llama", False), ("gpt2", True)):
        path = os.path.join(folder, name)
        if RANK == 0:
            make_model(name).save_pretrained(path, max_shard_size="50KB")
        dsrun.comm.barrier()
        config = make_config(3, bf16={"enabled": bf16})
        dtype = torch.bfloat16 if bf16 else torch.float32
        plain = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype).train()
        whole = sum(p.numel() for p in plain.parameters())
        kept = HfDeepSpeedConfig(config)  # while it lives, transformers builds within zero.Init
        sharded = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype).train()
        check(held(sharded) <= whole / 2 + 40, f"{held(sharded)} of {whole} elements are held")
        raises(RuntimeError, "size mismatch", lambda: sharded.lm_head(torch.ones(1, 32)))
        resized = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
        resized.resize_token_embeddings(70)
        del kept
        results = []
        for model in (plain, sharded):
            engine, *_ = dsrun.initialize(model=model, config=copy.deepcopy(config))
            results.append(run(engine, name, 3))
            engine.destroy()
        check(results[0] == results[1], f"{name}: {results[1]}, without zero.Init {results[0]}")
        rows = values_of(resized)[
            {"llama": "model.embed_tokens.weight", "gpt2": "transformer.wte.weight"}[name]]
        check(rows.shape == (70, 32) and rows.abs().sum() > 0, f"resized to {rows.shape}")


def main():
    torch.set_num_threads(1)
    folder = sys.argv[1]
    parts = os.path.join(folder, "parts")
    os.makedirs(parts, exist_ok=True)
    no_rank_holds_the_model()
    losses_are_those_without_it()
    ranks_start_from_the_first_ranks_values()
    parameters_can_be_written_before_an_engine()
    constructors_find_the_values_of_inner_modules()
    constructors_use_inner_modules_as_without_it()
    parameters_that_no_tensor_shares_are_sharded_early()
    tensors_given_to_sharded_parameters_are_not_lost_silently()
    contexts_nest_and_end(parts)
    models_of_transformers_load(folder)
    print("all checks passed", flush=True)


if __name__ == "__main__":
    main()
