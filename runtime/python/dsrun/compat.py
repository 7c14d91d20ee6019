"""Lets scripts that import ``deepspeed`` run on dsrun's engine, unmodified.

    import dsrun.compat

    dsrun.compat.install()  # before transformers, accelerate, trl and peft are imported

or, without a change of the script: its ranks run ``python -m dsrun.compat train.py``::

    dsrun --engine native train.py --its --arguments

`install` registers modules named deepspeed in this process, of names that stand for dsrun's own
objects: those that transformers, Accelerate, TRL, PEFT and common training loops import. A name
that is not here raises AttributeError or ModuleNotFoundError. Nothing is installed on disk.
"""

from __future__ import annotations

import atexit
import datetime
import functools
import importlib
import importlib.machinery
import importlib.metadata
import inspect
import logging
import os
import runpy
import sys
import types
from collections.abc import Sequence
from typing import Any

import torch

from . import (_native, accelerator, arguments, checkpoint_files, checkpointing, comm, dataloader,
               diagnostics, elasticity, engine, groups, lr_schedules, moe, mpi_ranks, ops, parts, pipe,
               pipe_engine, pipe_topology, refused, utils, zero)

VERSION = f"0.19.8+dsrun.{_native.version}"  # of the interface
_METADATA = f"Metadata-Version: 2.1\nName: deepspeed\nVersion: {VERSION}\n"


def init_distributed(dist_backend: str | None = None, *args: Any,
                     timeout: datetime.timedelta | None = None, **kwargs: Any) -> None:
    """Joins dsrun's job and, as DeepSpeed does, torch.distributed."""
    comm.init_distributed(dist_backend, *args, **kwargs)
    if torch.distributed.is_initialized():
        return
    # Default arguments of its functions are the group of this moment. Were it the ranks' group, its
    # threads would not end in leave_distributed, and the process may abort while they free tensors.
    importlib.import_module("torch.distributed.nn.functional")
    alone = {} if "MASTER_ADDR" in os.environ else {
        "store": torch.distributed.HashStore(), "rank": 0, "world_size": 1}
    backend = dist_backend or accelerator.get_accelerator().communication_backend_name()
    torch.distributed.init_process_group(backend, timeout=timeout, **alone)
    comm.barrier()  # a rank that ends now would cut off those that still connect to it
    # Scripts for DeepSpeed rarely do, and a process that ends with its threads may abort.
    atexit.register(leave_distributed)


def leave_distributed() -> None:
    """Ends torch.distributed and its threads, if it is initialized."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@functools.wraps(engine.initialize)
def initialize(*args: Any, **kwargs: Any) -> tuple:
    """dsrun.initialize, with torch.distributed initialized, as DeepSpeed's scripts expect it."""
    given = inspect.signature(engine.initialize).bind_partial(*args, **kwargs).arguments
    init_distributed(**{name: given[name] for name in ("distributed_port", "dist_init_required")
                        if name in given})
    return engine.initialize(*args, **kwargs)


class Init(zero.Init):
    """zero.Init, with torch.distributed initialized, as transformers' loading of models needs it."""

    @functools.wraps(zero.Init.__init__)
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.enabled:
            init_distributed()


def log_dist(message: str, ranks: Sequence[int] | None = None, level: int = logging.INFO) -> None:
    """Logs the message on the ranks of the list; on all ranks for None or -1 in it."""
    if not ranks or -1 in ranks or comm.get_rank() in ranks:
        utils.logger.log(level, message)


def _names_of(module) -> dict:
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    return {name: getattr(module, name) for name in names}


def _comm_names() -> dict:
    # The ranks of torch.distributed, which the script may divide into groups, are dsrun's.
    names = _names_of(torch.distributed)
    return names | {"init_distributed": init_distributed, "get_local_rank": comm.get_local_rank}


def _contents() -> dict[str, dict | types.ModuleType]:
    """The names of each module, which are set once its submodules are, or a module of dsrun."""
    zero_names = _names_of(zero) | {"Init": Init}
    get_accelerator = {"get_accelerator": accelerator.get_accelerator}
    logs = {"logger": utils.logger, "log_dist": log_dist}
    engine_names = {"DeepSpeedEngine": engine.Engine}
    loaders = {"RepeatingLoader": dataloader.RepeatingLoader}
    pipe_engine_names = {"PipelineEngine": pipe_engine.PipelineEngine,
                         "PipelineError": pipe.PipelineError}
    pipe_names = {name: getattr(pipe, name)
                  for name in ("PipelineModule", "LayerSpec", "TiedLayerSpec")}
    return {
        "deepspeed": {
            "__version__": VERSION, "version": VERSION, "initialize": initialize,
            "init_distributed": init_distributed, **logs, "OnDevice": parts.OnDevice,
            "add_config_arguments": arguments.add_config_arguments,
            "tp_model_init": refused.tp_model_init,
            "PipelineEngine": pipe_engine.PipelineEngine, "PipelineModule": pipe.PipelineModule,
            **engine_names, **get_accelerator},
        "deepspeed.accelerator": get_accelerator,
        "deepspeed.checkpoint": {},
        "deepspeed.checkpoint.utils": {
            "clone_tensors_for_torch_save": parts.clone_tensors_for_torch_save},
        "deepspeed.checkpointing": _names_of(checkpointing),
        "deepspeed.comm": _comm_names(),
        "deepspeed.elasticity": _names_of(elasticity),
        "deepspeed.moe": {},
        **{f"deepspeed.moe.{part}": _names_of(moe)
           for part in ("experts", "layer", "sharded_moe", "utils")},
        "deepspeed.ops": {},
        **{f"deepspeed.ops.{part}": _names_of(ops)
           for part in ("adagrad", "adam", "lamb", "lion")},
        "deepspeed.pipe": pipe_names,
        "deepspeed.runtime": {},
        "deepspeed.runtime.activation_checkpointing": {},
        "deepspeed.runtime.activation_checkpointing.checkpointing": _names_of(checkpointing),
        "deepspeed.runtime.dataloader": loaders,
        "deepspeed.runtime.engine": engine_names,
        "deepspeed.runtime.lr_schedules": _names_of(lr_schedules),
        "deepspeed.runtime.pipe": {
            **pipe_names, "ProcessTopology": pipe_topology.ProcessTopology},
        "deepspeed.runtime.pipe.engine": pipe_engine_names,
        "deepspeed.runtime.pipe.module": {**pipe_names, "PipelineError": pipe.PipelineError},
        "deepspeed.runtime.pipe.topology": {
            name: getattr(pipe_topology, name)
            for name in ("ProcessTopology", "PipeDataParallelTopology",
                         "PipeModelDataParallelTopology", "PipelineParallelGrid")},
        "deepspeed.runtime.sequence_parallel": {},
        "deepspeed.runtime.sequence_parallel.ulysses_sp": {
            "UlyssesSPAttentionHF": refused.UlyssesSPAttentionHF,
            "UlyssesSPDataLoaderAdapter": refused.UlyssesSPDataLoaderAdapter},
        "deepspeed.runtime.utils": {"move_to_device": parts.move_to_device,
                                    "see_memory_usage": diagnostics.see_memory_usage},
        "deepspeed.runtime.zero": zero_names,
        "deepspeed.runtime.zero.offload_config": {
            "OffloadDeviceEnum": parts.OffloadDeviceEnum,
            "OffloadStateTypeEnum": parts.OffloadStateTypeEnum},
        "deepspeed.runtime.zero.partition_parameters": {
            **zero_names,
            # transformers replaces the function while zero.Init is active: Init needs none.
            "zero_wrapper_for_fp_tensor_constructor": None},
        "deepspeed.utils": {**_names_of(utils), **logs, **loaders, "OnDevice": parts.OnDevice,
                            "instrument_w_nvtx": diagnostics.instrument_w_nvtx},
        "deepspeed.utils.groups": groups,  # itself: its mpu changes, and scripts may set it
        "deepspeed.utils.init_on_device": {"OnDevice": parts.OnDevice},
        "deepspeed.utils.logging": logs,
        "deepspeed.utils.nvtx": {"instrument_w_nvtx": diagnostics.instrument_w_nvtx},
        "deepspeed.utils.zero_to_fp32": _names_of(checkpoint_files),
        "deepspeed.zero": zero_names,
    }


class _Distribution(importlib.metadata.Distribution):
    """The metadata by which Accelerate and transformers look for DeepSpeed."""

    def read_text(self, filename):
        return _METADATA if filename in ("METADATA", "PKG-INFO") else None

    def locate_file(self, path):
        raise NotImplementedError("deepspeed is dsrun.compat, which has no files of its own")


class _Finder(importlib.metadata.DistributionFinder):
    def find_spec(self, fullname, path=None, target=None):
        return None  # the modules are in sys.modules

    def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):
        return [_Distribution()] if context.name in (None, "deepspeed") else []


def _let_accelerate_find_ranks() -> None:
    """Makes Accelerate, if there is one, find the ranks of a job with a ds_config on CPUs.

    By itself it takes each rank of such a job for the only one, on a host without a GPU.
    """
    try:
        from accelerate import state
    except ImportError:
        return
    prepare = state.PartialState._prepare_backend

    def prepare_backend(self, cpu=False, *args, **kwargs):
        if not cpu and "RANK" in os.environ and comm.get_device().type == "cpu" and \
                os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
            return "gloo", state.DistributedType.MULTI_CPU
        return prepare(self, cpu, *args, **kwargs)

    state.PartialState._prepare_backend = prepare_backend


def _make_module(name: str, names: dict) -> types.ModuleType:
    module = types.ModuleType(name, "dsrun.compat: see its documentation")
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    vars(module).update(names)
    return module


def is_installed() -> bool:
    """Returns whether `import deepspeed` gives dsrun in this process."""
    return getattr(sys.modules.get("deepspeed"), "__version__", None) == VERSION


def install() -> None:
    """Makes ``import deepspeed`` in this process give dsrun; may be called again.

    Raises RuntimeError if the process has imported DeepSpeed itself, or Accelerate before it
    could find this.
    """
    if is_installed():
        return
    # Accelerate and transformers read them before init_distributed, which knows the port.
    mpi_ranks.set_variables(port=None)
    if "deepspeed" in sys.modules:
        raise RuntimeError("dsrun.compat.install: DeepSpeed itself has been imported already; "
                           "call install() first, or import only one")
    accelerator = sys.modules.get("accelerate.accelerator")
    if accelerator is not None and not hasattr(accelerator, "DeepSpeedEngineWrapper"):
        raise RuntimeError("dsrun.compat.install: accelerate has been imported already, and has "
                           "found no DeepSpeed; call install() first")
    contents = _contents()
    for name, names in contents.items():
        sys.modules[name] = names if isinstance(names, types.ModuleType) else _make_module(name, names)
    for name in contents:
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, sys.modules[name])
    sys.meta_path.insert(0, _Finder())
    _let_accelerate_find_ranks()


def main() -> None:
    """Runs the script, or the module after -m, that the command line names."""
    del sys.argv[0]
    is_module = sys.argv[:1] == ["-m"]
    if is_module:
        del sys.argv[0]
    if not sys.argv:
        sys.exit("usage: python -m dsrun.compat SCRIPT | -m MODULE [ARGUMENT ...]")
    install()
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    # As the package's module, not as __main__: scripts call dsrun.compat.install, too.
    from dsrun import compat

    compat.main()
