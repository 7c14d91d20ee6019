"""dsrun: train PyTorch modules on dsrun's C++ engine, with DeepSpeed's interface.

    import dsrun

    engine, optimizer, _, scheduler = dsrun.initialize(model=model, config="ds_config.json")
    for batch in loader:
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()

Start the script by ``dsrun train.py``, by ``torchrun``, or with Python alone as a single rank.
"""

import importlib.util

import torch

if importlib.util.find_spec("dsrun._native") is None:
    raise ImportError("dsrun was installed without its extension module dsrun._native")

# Before the import: an extension of another PyTorch fails with unresolved symbols.
from ._torch_version import check_torch_version

check_torch_version(torch.__version__)

from . import (_native, accelerator, checkpoint_files, checkpointing, comm,  # noqa: E402
               diagnostics, elasticity, groups, lr_schedules, moe, ops, parts, pipe, utils, zero)
from .arguments import add_config_arguments  # noqa: E402
from .comm import init_distributed  # noqa: E402
from .engine import Engine, initialize  # noqa: E402
from .memory_plan import MemoryPlan, plan_memory  # noqa: E402
from .pipe import PipelineModule  # noqa: E402
from . import _end  # noqa: E402

_end.install()

__version__ = _native.version
__all__ = ["Engine", "MemoryPlan", "PipelineModule", "accelerator", "add_config_arguments",
           "checkpoint_files", "checkpointing", "comm", "diagnostics", "elasticity", "groups",
           "init_distributed", "initialize", "lr_schedules", "moe", "ops", "parts", "pipe",
           "plan_memory", "utils", "zero"]
