"""initialize() and the engine that it returns: DeepSpeed's interface on dsrun's C++ engine."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import _end, _native, comm, engine_checkpoints, optimizers
from . import groups as groups_of_ranks
from .checks import (check_all_grouped, check_kept_in_fp32, check_layers, check_renormalised,
                     check_same_on_ranks)
from .config import (autocast_dtype, casts_inputs, check_sections, read_config, section, take_python_keys,
                     to_json, training_dtype)
from .expert_ranks import ApartExperts, find_apart_experts
from .hooks import ParameterOffload, Passes, cast_tensors, no_external_parameters
from .pipe import PipelineModule
from .shards import Handover, ZeroParamStatus
from .together import call_on_rank_0, call_together
from .units import (Owner, find_leaf_modules, name_buffers, owner_of, partition,
                    persistent_buffers)
from .utils import logger


_READ_AFTER_RELEASE = (
    "the backward pass needs a parameter that is sharded again: a forward within GatheredParameters has its "
    "backward there, too; and a block returns copies of its parameters, not views such as weight.t()")


class Engine(nn.Module):
    """Trains a module with ZeRO. `initialize` makes it.

    Call it as the module; then `backward(loss)`, or loss.backward(), and `step()` after each
    micro-batch. The engine owns the parameters' memory: with sharded parameters, values are read
    within the module's forward, or within zero.GatheredParameters.

    Without an optimizer (none is given, and the config names none) it only evaluates: its
    `optimizer` is None, and calls compute no gradients.
    """

    def __init__(self, module: nn.Module, config: dict, groups: optimizers.Groups | None,
                 lr_scheduler: Any = None):
        super().__init__()
        self.native = None
        comm.init_distributed()
        self.module = module
        self.config = config
        check_sections(config, is_pipeline=isinstance(module, PipelineModule))
        check_kept_in_fp32(module, training_dtype(config))
        check_layers(module)
        self.device = comm.get_device()
        _move(module, self.device)
        native_config = to_json(config)
        if groups is not None and groups.section is not None:
            native_config["optimizer"] = to_json(groups.section)
        check_same_on_ranks(native_config)
        trains = "optimizer" in native_config
        if lr_scheduler is not None and not trains:
            raise ValueError("initialize(lr_scheduler=...) without an optimizer: give one, or name "
                             "one in the config")
        has_schedule = trains and "scheduler" in native_config and lr_scheduler is None
        if not has_schedule:
            native_config.pop("scheduler", None)
        if trains:
            check_renormalised(module, native_config)
        else:
            native_config["optimizer"] = {"type": "SGD", "params": {"lr": 1.0}}
        if groups is None:
            groups = optimizers.from_parameters(
                [p for p in module.parameters() if p.requires_grad], native_config["optimizer"])
        check_all_grouped(module, groups)
        if not isinstance(module, PipelineModule):  # whose stages have groups of their own
            check_same_on_ranks({"rates of the parameter groups": groups.rates})
        leaves = find_leaf_modules(module, take_python_keys(native_config))
        if isinstance(module, PipelineModule):
            leaves.update(map(id, module.list_layers()))
        units = partition(module, leaves)
        self._apart = apart = find_apart_experts(module, native_config)
        apart.name_units(units)
        # What is refused above leaves an engine that has the module as it is.
        _take_from_engines(module)
        groups_of_ranks.mpu = module.mpu() if isinstance(module, PipelineModule) else None
        handover = Handover(units)
        with handover, contextlib.nullcontext() if trains else _frozen(module):
            self.native = _native.Engine(
                [(unit.name, _describe_parameters(unit, groups, apart), sorted(unit.also_reads))
                 for unit in units],
                persistent_buffers(module), json.dumps(native_config, allow_nan=False),
                groups.rates,
                write_first_values=handover.write if handover.sharded else None)
        for warning in self.native.warnings if comm.get_rank() == 0 else []:
            logger.warning(warning)
        _end.engines.add(self)
        self.passes = Passes(module, units, self.native)
        self._own_parameters(units)
        self.optimizer = self.lr_scheduler = None
        if trains:
            self.optimizer = optimizers.EngineOptimizer(
                groups, self.native, has_schedule, native_config["optimizer"])
            if self.zero_optimization_partition_weights():
                self.optimizer.parameter_offload = ParameterOffload(module, self.passes)
            if has_schedule or groups.are_of_config:  # the config names the rate
                self.optimizer.show_rate()
            self.lr_scheduler = self._make_scheduler(lr_scheduler, has_schedule)
        self.gathered = None  # (names, modifier_rank) within GatheredParameters
        # Of the latest step(): boundary, step, loss (the mean over all ranks), grad_norm, lr, ...
        self.step_result = None

    def _make_scheduler(self, lr_scheduler, has_schedule: bool):
        if has_schedule:
            return optimizers.ConfigScheduler(self.optimizer)
        if callable(lr_scheduler) and not hasattr(lr_scheduler, "step"):
            return lr_scheduler(self.optimizer)
        return lr_scheduler

    def _own_parameters(self, units) -> None:
        self._names = {id(p): n for u in units for n, p in u.parameters.items()}
        self._sharded = set(self.native.sharded_parameters)
        number = 0
        self._state_dict_hook = self.module.register_state_dict_post_hook(_EmptyShards(self))
        for module in self.module.modules():
            module.__dict__["ds_external_parameters"] = no_external_parameters
        for unit in units:
            for name, parameter in unit.parameters.items():
                parameter._dsrun_owner = Owner(self, name)
                parameter.ds_id = number
                parameter.ds_shape = parameter.shape
                parameter.ds_numel = parameter.numel()
                parameter.ds_status = self.idle_status_of(name)
                parameter.ds_active_sub_modules = set()
                number += 1

    def idle_status_of(self, name: str) -> ZeroParamStatus:
        """The status between passes of the parameter with this name."""
        return (ZeroParamStatus.NOT_AVAILABLE if name in self._sharded
                else ZeroParamStatus.AVAILABLE)

    def __getattr__(self, name: str) -> Any:
        """The engine has the module's attributes, such as dtype."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            module = self.__dict__.get("_modules", {}).get("module")
            if module is None:
                raise
            if not hasattr(module, name):
                raise AttributeError(f"neither the engine nor its module, a {type(module).__name__}, "
                                     f"has {name}") from None
            return getattr(module, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the module; without an optimizer, without gradients."""
        if self.passes.closed:
            raise RuntimeError("the engine has been destroyed: call its module, or make another "
                               "engine with initialize()")
        if casts_inputs(self.config):
            args = cast_tensors(args, torch.float16)
        with contextlib.ExitStack() as contexts:
            if self.optimizer is None:
                contexts.enter_context(torch.no_grad())
            contexts.enter_context(self._autocast())
            try:
                return self.module(*args, **kwargs)
            except BaseException:  # of KeyboardInterrupt, modules do not tell their hooks
                self.passes.forget()
                raise

    def _autocast(self):
        """The context of torch_autocast. Without that section, none applies within the module."""
        dtype = autocast_dtype(self.config)
        of_script = torch.is_autocast_enabled(self.device.type)
        if dtype is None and not of_script:
            return contextlib.nullcontext()
        if of_script and dtype != torch.get_autocast_dtype(self.device.type):
            _warn_of_autocast()
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    def backward(self, loss: torch.Tensor, retain_graph: bool = False,
                 scale_wrt_gas: bool = True) -> torch.Tensor:
        """Accumulates the gradients of loss / gradient_accumulation_steps(), and returns that.

        With scale_wrt_gas=False, the script has divided the loss.
        """
        self._check_trains("backward")
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            what = f"of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else \
                f"a {type(loss).__name__}"
            raise ValueError(f"engine.backward(loss): the loss is {what}, and has to be a scalar "
                             "tensor, such as its mean(). Gradients of other outputs are passed by "
                             "outputs.backward(gradients)")
        try:
            self.native.backward(loss, scale_wrt_gas, retain_graph)
        except RuntimeError as error:
            if "storage of size 0" in str(error):
                raise RuntimeError(_READ_AFTER_RELEASE) from error
            raise
        return loss / self.gradient_accumulation_steps() if scale_wrt_gas else loss

    def step(self, lr_kwargs: dict | None = None) -> None:
        """Updates the parameters after the last micro-batch of a step; before that, does nothing.

        `lr_kwargs` are given to the scheduler's step.
        """
        self._check_trains("step")
        self.passes.owned.check()
        self.optimizer.push_rate()
        self._take_result(self.native.step(), lr_kwargs)

    def _take_result(self, result, lr_kwargs=None) -> None:
        """Ends a step, or a micro-batch of one, for the script's optimizer and scheduler."""
        self.step_result = result
        if not result.boundary:
            return
        self.optimizer.overflow = result.skipped
        self.optimizer.pull_rate()
        if self.lr_scheduler is not None and not result.skipped:
            # The engine has updated; PyTorch's schedulers look at the script's own optimizer.
            getattr(self.lr_scheduler, "optimizer", self.optimizer)._opt_called = True
            self.lr_scheduler.step(**(lr_kwargs or {}))

    def _apply(self, fn, recurse: bool = True):
        """What half(), bfloat16(), float() and to() call: the parameters' dtype is the config's."""
        trained = training_dtype(self.config) or torch.float32
        dtype = fn(torch.empty(0, dtype=trained, device=self.device)).dtype
        if dtype != trained and not self.passes.closed:
            raise RuntimeError(f"the engine has its parameters in {trained}, as its config says, and "
                               f"cannot change them to {dtype}: choose the dtype in the config (bf16, "
                               "fp16), before initialize()")
        return super()._apply(fn, recurse)

    @property
    def global_rank(self) -> int:
        """This rank, among all of the job."""
        return comm.get_rank()

    @property
    def local_rank(self) -> int:
        """This rank, among the ranks of its host."""
        return comm.get_local_rank()

    @property
    def world_size(self) -> int:
        """The number of ranks of the job."""
        return comm.get_world_size()

    @property
    def dp_world_size(self) -> int:
        """The number of ranks that train on different samples."""
        return comm.get_world_size()

    def _check_trains(self, what: str) -> None:
        if self.optimizer is None:
            raise RuntimeError(f"engine.{what}(): the engine has no optimizer and only evaluates: "
                               "give one to initialize(), or name one in the config")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of a micro-batch before step(), which then does nothing.

        With gradient_accumulation_steps above 1, or boundaries that the script sets, it does nothing.
        No gradients are left after step().
        """
        if self.optimizer is not None:
            self.optimizer.zero_grad()

    def train_batch_size(self) -> int:
        """Returns the samples of a step, on all ranks."""
        return self.native.batch_sizes[0]

    def train_micro_batch_size_per_gpu(self) -> int:
        """Returns the samples of a micro-batch, on one rank."""
        return self.native.batch_sizes[1]

    def gradient_accumulation_steps(self) -> int:
        """Returns the micro-batches of a step."""
        return self.native.batch_sizes[2]

    def set_train_batch_size(self, train_batch_size: int) -> None:
        """Changes the micro-batches of a step, between steps."""
        self.native.set_train_batch_size(train_batch_size)

    def set_train_micro_batch_size(self, micro_batch_size: int) -> None:
        """Changes the samples of a micro-batch, between steps."""
        self.native.set_train_micro_batch_size(micro_batch_size)

    def is_gradient_accumulation_boundary(self) -> bool:
        """Returns whether the next step() updates the parameters."""
        return self.native.is_boundary

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        """Says whether the next step() updates, in place of counting micro-batches."""
        self.native.set_boundary(is_boundary)

    def make_loader(self, training_data: Any, collate_fn: Callable | None = None) -> Any:
        """Returns a loader of this rank's micro-batches, in a random order that never changes.

        The last one may be smaller, unless ds_config has dataloader_drop_last.
        """
        return self._make_loader(training_data, collate_fn, comm.get_rank(), shuffle=True)

    def _make_loader(self, training_data, collate_fn, copy: int, shuffle: bool):
        """Returns the loader of copy number `copy` of the model, of dp_world_size."""
        from torch.utils.data import DataLoader, IterableDataset
        from torch.utils.data.distributed import DistributedSampler

        if isinstance(training_data, IterableDataset):
            raise TypeError("training_data is an IterableDataset, which ranks cannot divide: make a "
                            "DataLoader of each rank's own samples")
        sampler = DistributedSampler(training_data, self.dp_world_size, copy, shuffle=shuffle)
        return DataLoader(training_data, batch_size=self.train_micro_batch_size_per_gpu(),
                          sampler=sampler, collate_fn=collate_fn,
                          drop_last=bool(self.config.get("dataloader_drop_last", False)))

    def no_sync(self) -> AbstractContextManager[None]:
        """Backward passes within communicate no gradients (stages 0 and 1)."""
        return self._local_gradients(coalesce=False)

    def coalesce_grad_reduction(self) -> AbstractContextManager[None]:
        """Backward passes within keep full gradients, which are reduced at once later."""
        return self._local_gradients(coalesce=True)

    @contextlib.contextmanager
    def _local_gradients(self, coalesce: bool):
        self.native.enter_local_gradients(coalesce)
        try:
            yield
        finally:
            self.native.leave_local_gradients()

    def get_global_grad_norm(self) -> float | None:
        """Returns the L2 norm of the latest update's gradients, before clipping."""
        return self.native.global_grad_norm

    def get_lr(self) -> list[float]:
        """Returns the rate of each parameter group."""
        return [group["lr"] for group in self._param_groups()]

    def _param_groups(self) -> list[dict]:
        return [] if self.optimizer is None else self.optimizer.param_groups

    def set_lr(self, lr: float) -> None:
        """Sets the first group's rate, for one step if there is a schedule. Groups keep their ratios."""
        self._check_trains("set_lr")
        if isinstance(lr, str) or not hasattr(lr, "__float__"):
            raise TypeError(f"set_lr(lr={lr!r}): a rate is a number")
        self.optimizer.scale_rates(float(lr))
        self.optimizer.show_rate()

    def was_step_applied(self) -> bool:
        """Returns whether the latest step() has updated the parameters."""
        return self.native.was_step_applied

    @property
    def global_steps(self) -> int:
        """The number of finished steps, also of skipped ones."""
        return self.native.finished_steps

    @property
    def global_samples(self) -> int:
        """The number of samples of all finished steps."""
        return self.native.global_samples

    @property
    def skipped_steps(self) -> int:
        """The number of steps with an overflow in fp16."""
        return self.native.skipped_steps

    @property
    def micro_steps(self) -> int:
        """The number of micro-batches of all steps."""
        return self.native.micro_steps

    def _zero(self) -> dict:
        return section(self.config, "zero_optimization")

    def zero_optimization_stage(self) -> int:
        """Returns the ZeRO stage, 0 to 3."""
        return int(self._zero().get("stage", 0))

    def zero_optimization(self) -> bool:
        """Returns whether ZeRO shards anything."""
        return self.zero_optimization_stage() > 0

    def zero_optimization_partition_weights(self) -> bool:
        """Returns whether the parameters are sharded (stage 3)."""
        return self.zero_optimization_stage() == 3

    def zero_gather_16bit_weights_on_model_save(self) -> bool:
        """Returns the value of the ds_config; save_16bit_model always gathers."""
        return bool(self._zero().get("stage3_gather_16bit_weights_on_model_save", False))

    def fp16_enabled(self) -> bool:
        """Returns whether the parameters are in fp16."""
        return training_dtype(self.config) == torch.float16

    def bfloat16_enabled(self) -> bool:
        """Returns whether the parameters are in bf16."""
        return training_dtype(self.config) == torch.bfloat16

    def gradient_clipping(self) -> float:
        """Returns the largest norm of the gradients; 0: no clipping."""
        return float(self.config.get("gradient_clipping", 1.0))

    def offload_states(self, include: Iterable | None = None, device: Any = "cpu",
                       pin_memory: bool = True, non_blocking: bool = False) -> None:
        """Moves the model's state to host memory until reload_states or the next use.

        `pin_memory` and `non_blocking` are accepted; both follow from the device.
        """
        if getattr(device, "value", device) != "cpu":
            raise ValueError(f"offload_states(device={device!r}): state is moved to cpu only")
        names = [getattr(kind, "value", kind) for kind in include or []]
        unknown = set(names) - set(_native.StateKind.__members__)
        if unknown:
            raise ValueError(f"offload_states(include=...) knows no {', '.join(sorted(unknown))}, but "
                             f"{', '.join(_native.StateKind.__members__)}")
        self.native.offload_states([getattr(_native.StateKind, name) for name in names])

    def reload_states(self, non_blocking: bool = False) -> None:
        """Moves the states back that offload_states has moved."""
        self.native.reload_states()

    def empty_partition_cache(self) -> None:
        """Frees the buffers of gathered parameters and gradients, between steps."""
        self.native.empty_partition_cache()

    def _show_buffers(self) -> None:
        """Gives the engine the module's buffers, which it may have assigned anew."""
        self.native.set_buffers(persistent_buffers(self.module))

    def _full_state_dict(self) -> dict | None:
        """The module's state_dict with unsharded values, on rank 0; None elsewhere. Collective."""
        call_together(self.passes.owned.check)
        self._show_buffers()
        values = self.native.export_parameters()
        names = self._names_of_state()
        return None if names is None else {name: values[own] for name, own in names.items()}

    def _names_of_state(self) -> dict[str, str] | None:
        """The engine's name of each name in the state_dict, on rank 0; None elsewhere. Collective."""
        return self._own_names_of_state() if comm.get_rank() == 0 else None

    def _own_names_of_state(self) -> dict[str, str]:
        """The engine's name of each name in this rank's state_dict: shared values have several."""
        names = {}
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            # Rank 0 has the first experts: names within its module are those among all experts.
            own = self._names[id(parameter)]
            names |= zip(*map(self._apart.of_all_ranks, (name, own)), strict=True)
        return names | {name: own for name, (own, _) in name_buffers(self.module).items()}

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False):
        frozen = self._frozen_names() if exclude_frozen_parameters else ()
        state = self._full_state_dict()
        if state is None:
            return None
        return {name: value for name, value in state.items() if name not in frozen}

    def _frozen_names(self) -> set[str]:
        """The names of frozen parameters, of all stages of a pipeline. Collective."""
        mine = [each for name, parameter in self.module.named_parameters(remove_duplicate=False)
                if not parameter.requires_grad for each in self._apart.of_all_ranks(name)]
        all_names = "\n".join(filter(None, _native.gather_texts("\n".join(mine))))
        return set(filter(None, _native.broadcast_text(all_names).split("\n")))

    def save_16bit_model(self, save_dir: str | os.PathLike, save_filename: str = "pytorch_model.bin",
                         exclude_frozen_parameters: bool = False) -> bool:
        """Writes the full weights, in the training dtype, to one file."""
        state = self._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters)

        def write():
            os.makedirs(save_dir, exist_ok=True)
            torch.save(state, os.path.join(save_dir, save_filename))

        call_on_rank_0(write)
        return True

    def save_checkpoint(self, save_dir: str | os.PathLike, tag: str | None = None,
                        client_state: dict | None = None, save_latest: bool = True,
                        exclude_frozen_parameters: bool = False) -> bool:
        """Saves weights, optimizer, schedule and rank 0's `client_state` to save_dir/tag.

        The tag is global_step<N> by default. The folder holds a checkpoint of dsrun, which
        `dsrun checkpoint` reads, and which loads at any ZeRO stage and number of ranks. One that the
        tag has already is replaced as a whole, and removed after that. With
        `exclude_frozen_parameters` it has no frozen weights: load it with load_module_strict=False.
        """
        engine_checkpoints.save(self, Path(save_dir), tag, client_state, save_latest=save_latest,
                                frozen=not exclude_frozen_parameters)
        return True

    def load_checkpoint(self, load_dir: str | os.PathLike, tag: str | None = None,
                        load_module_strict: bool = True, load_optimizer_states: bool = True,
                        load_lr_scheduler_states: bool = True, load_module_only: bool = False,
                        custom_load_fn: Callable | None = None) -> tuple[str | None, dict]:
        """Loads what save_checkpoint saved. Returns (folder, client_state), or (None, {}).

        Tensors of client_state are in host memory. Load files that you trust only: client_state may
        have any objects of Python.

        Args:
            load_module_strict: if False, weights that the checkpoint does not have stay as they
                are, and those that the module does not have are left out.
            load_optimizer_states: if False, the optimizer's state stays as it is. An engine without
                an optimizer needs none.
            load_lr_scheduler_states: if False, the schedule's position stays as it is.
            load_module_only: loads weights and buffers, and no counts of steps.
            custom_load_fn: is called as custom_load_fn(src=, dst=) in place of loading the weights:
                with the checkpoint's weights by name, and with the module, whose parameters have
                their values. What it writes on rank 0 is kept. At stages 2 and 3, frozen weights
                that the checkpoint has are loaded after it, as by DeepSpeed.
        """
        choice = engine_checkpoints.Choice(
            strict=load_module_strict, optimizer_states=load_optimizer_states,
            schedule=load_lr_scheduler_states, module_only=load_module_only,
            custom_load_fn=custom_load_fn)
        return engine_checkpoints.load(self, Path(load_dir), tag, choice)

    def _modules_with_extra_state(self) -> dict[str, nn.Module]:
        return {name: module for name, module in self.module.named_modules()
                if type(module).get_extra_state is not nn.Module.get_extra_state}

    def compile(self, backend: Any = "inductor", compile_kwargs: dict | None = None,
                schedule: Any = None) -> None:
        """Compiles the module, as torch.compile does."""
        if schedule is not None:
            raise NotImplementedError("engine.compile(schedule=...): there is no DeepCompile")
        self.module.compile(backend=backend, **(compile_kwargs or {}))

    def destroy(self) -> None:
        """Gives the module back, without the engine's hooks. Sharded parameters have no values."""
        passes = self.__dict__.get("passes")
        if passes is not None:
            passes.detach()
            self._state_dict_hook.remove()
        if self.__dict__.get("native") is not None:
            self.native.destroy()
        for parameter in self.module.parameters():
            if owner_of(parameter)[0] in (None, self):
                parameter.__dict__.pop("_dsrun_owner", None)

    def _give_back(self) -> None:
        """Destroys the engine; the module has its values on every rank. Collective."""
        values = {}
        if self._sharded:
            self.native.open_gathered(sorted(self._names.values()), None)
            values = {p: p.detach().clone() for p in self.module.parameters()}
            self.native.close_gathered("")
        self.destroy()
        for parameter, value in values.items():
            parameter.data = value

    def __del__(self):
        with contextlib.suppress(Exception):
            self.destroy()


@functools.cache  # once
def _warn_of_autocast() -> None:
    if comm.get_rank() == 0:
        logger.warning("torch.autocast around the engine has no effect within it: the config's "
                       "torch_autocast, bf16 and fp16 decide. To use torch.autocast in the engine, "
                       "enable torch_autocast in the config, with its dtype")


def _take_from_engines(module: nn.Module) -> None:
    """Destroys the engines that have the module's parameters: a new one takes them over."""
    for parameter in module.parameters():
        engine, _ = owner_of(parameter)
        if engine is not None:
            engine._give_back()


@contextlib.contextmanager
def _frozen(module: nn.Module):
    """Within, no parameter of the module needs gradients."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


class _EmptyShards:
    """Lets state_dict() of the module have empty tensors for sharded parameters, but on rank 0.

    As DeepSpeed's has. Libraries build it on all ranks and write rank 0's, for which a script passes
    the full weights: save_pretrained(state_dict=accelerator.get_state_dict(model)).
    """

    def __init__(self, engine: Engine | None):
        self.engine = weakref.ref(engine) if engine is not None else lambda: None

    def __deepcopy__(self, memo: dict) -> _EmptyShards:
        return _EmptyShards(None)

    def __reduce__(self) -> tuple:
        return (_EmptyShards, (None,))

    def __call__(self, module: nn.Module, state: dict, prefix: str, metadata: Any) -> None:
        engine = self.engine()
        if engine is None or engine.passes.closed or engine.gathered is not None or comm.get_rank() == 0:
            return
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if engine._names.get(id(parameter)) in engine._sharded and prefix + name in state:
                state[prefix + name] = torch.empty(0, dtype=parameter.dtype, device=parameter.device)


def _move(module: nn.Module, device: torch.device) -> None:
    """Moves the module to the device, if a part of it is elsewhere."""
    tensors = [*module.parameters(), *module.buffers()]
    if any(tensor.device != device and not tensor.is_meta for tensor in tensors):
        module.to(device)


def _describe_parameters(unit, groups: optimizers.Groups, apart: ApartExperts) -> list[tuple]:
    return [(name, parameter, unit.classes[name], groups.index.get(id(parameter), 0),
             groups.decay_factor.get(id(parameter), 1.0), getattr(parameter, "_dsrun_stages", []),
             id(parameter) in apart.parameters)
            for name, parameter in unit.parameters.items()]


def _engine_class(model: nn.Module) -> type[Engine]:
    from .pipe_engine import PipelineEngine  # which imports this module

    return PipelineEngine if isinstance(model, PipelineModule) else Engine


def initialize(args: Any = None, model: nn.Module | None = None,
               optimizer: torch.optim.Optimizer | Callable | None = None,
               model_parameters: Iterable | None = None, training_data: Any = None,
               lr_scheduler: Any = None, distributed_port: int = 29500, mpu: Any = None,
               dist_init_required: bool | None = None, collate_fn: Callable | None = None,
               config: dict | str | os.PathLike | None = None, mesh_param: Any = None,
               config_params: dict | str | os.PathLike | None = None
               ) -> tuple[Engine, optimizers.EngineOptimizer | None, Any, Any]:
    """Shards the module and returns (engine, optimizer, dataloader, lr_scheduler).

    Args:
        model: a torch.nn.Module, built within zero.Init or with its values on every rank; rank 0's
            are trained. It is cast to the training dtype of the config, except for its buffers.
            A PipelineModule gets a PipelineEngine.
        optimizer: None (ds_config names one, or the engine only evaluates), an optimizer of
            torch.optim that has a counterpart in the engine, or a function of the parameters that
            returns such a one.
        model_parameters: parameters or groups, for ds_config's optimizer.
        training_data: a data set, for the returned loader of this rank's micro-batches.
        lr_scheduler: a scheduler, or a function of the optimizer that returns one, advanced by
            engine.step(); else ds_config's.
        collate_fn: for the returned loader.
        config: ds_config as a dictionary or a path (also config_params), if args.deepspeed_config
            is not given.
        distributed_port, dist_init_required: as for init_distributed.

    Raises:
        ValueError: the config is not valid, or contradicts the model.
        NotImplementedError: the engine cannot do what is asked for.
    """
    if model is None:
        raise ValueError("initialize() needs a model")
    for name, given in (("mpu", mpu), ("mesh_param", mesh_param)):
        if given is not None:
            raise NotImplementedError(f"initialize({name}=...): Python modules are trained with "
                                      "data parallelism and ZeRO")
    comm.init_distributed(distributed_port=distributed_port, dist_init_required=dist_init_required)
    read = read_config(args, config, config_params)
    if optimizer is not None and callable(optimizer) and not hasattr(optimizer, "param_groups"):
        optimizer = optimizer(model_parameters or [p for p in model.parameters()
                                                   if p.requires_grad])
    groups = None  # as the config's optimizer has them, if it names one
    if optimizer is not None and type(optimizer).__name__ != "DummyOptim":
        groups = optimizers.from_torch(optimizer)
    elif model_parameters is not None and "optimizer" in read:
        groups = optimizers.from_parameters(model_parameters, read["optimizer"])
    engine = _engine_class(model)(model, read, groups, lr_scheduler)
    loader = None
    if training_data is not None:
        loader = engine.make_loader(training_data, collate_fn)
    return engine, engine.optimizer, loader, engine.lr_scheduler
