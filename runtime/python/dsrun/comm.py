"""The ranks of the job: DeepSpeed's ``deepspeed.comm`` as far as scripts use it."""

from __future__ import annotations

import datetime
import os
from typing import Any

import torch

from . import _native, mpi_ranks


def choose_device() -> str:
    """Returns the kind of device of this process: "cuda" where PyTorch sees a GPU, else "cpu".

    CUDA_VISIBLE_DEVICES hides GPUs; DS_ACCELERATOR names the kind, as for DeepSpeed.
    """
    wanted = os.environ.get("DS_ACCELERATOR", "")
    if wanted not in ("", "cpu", "cuda"):
        raise ValueError(f"DS_ACCELERATOR={wanted}: dsrun computes on cpu or cuda")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("DS_ACCELERATOR=cuda: PyTorch finds no usable GPU")
    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def _join() -> None:
    if _native.is_joined():
        return
    mpi_ranks.set_variables()
    kind = choose_device()
    try:
        _native.join(kind)
    except KeyError as error:  # the plugin, or a GPU that it can use, is missing
        if kind == "cpu":
            raise
        raise RuntimeError(f"PyTorch finds a GPU, and dsrun does not: {error.args[0]}; "
                           "DS_ACCELERATOR=cpu trains on the CPU") from None


def get_device() -> torch.device:
    """The device of this rank: of its engines, their modules and its collectives."""
    _join()
    return torch.device(_native.device())


def init_distributed(dist_backend: str | None = None, auto_mpi_discovery: bool = True,
                     distributed_port: int = mpi_ranks.DEFAULT_PORT, verbose: bool = True,
                     timeout: datetime.timedelta | None = None, init_method: str | None = None,
                     dist_init_required: bool | None = None, config: Any = None, rank: int = -1,
                     world_size: int = -1) -> None:
    """Joins the job that the environment describes; idempotent.

    These are RANK, WORLD_SIZE, ... of dsrun and torchrun, else the variables of mpirun, mpiexec or srun.
    dsrun uses its own collectives, next to torch.distributed if the script uses that itself.

    Args:
        auto_mpi_discovery: if False, ranks of MPI without RANK and WORLD_SIZE are an error.
        distributed_port: MASTER_PORT of MPI's ranks, if that is not set.
        dist_init_required: if False, the job has to be joined already, or torch.distributed initialized.
        rank, world_size: those of the environment, if given.
        dist_backend, verbose, timeout, init_method, config: accepted; they have no effect.

    Raises:
        RuntimeError: ranks are missing, or variables contradict each other.
        ValueError: `rank` or `world_size` contradicts the environment.
    """
    if dist_init_required is False and not (_native.is_joined() or torch.distributed.is_initialized()):
        raise RuntimeError("init_distributed(dist_init_required=False), and nothing is initialized: leave "
                           "the argument out, or call init_distributed() before")
    if auto_mpi_discovery:
        mpi_ranks.set_variables(distributed_port)
    else:
        mpi_ranks.refuse_unknown_rank()
    for name, given, alone in (("RANK", rank, 0), ("WORLD_SIZE", world_size, 1)):
        if given >= 0 and int(os.environ.get(name, alone)) != given:
            found = f"{name}={os.environ[name]}" if name in os.environ else f"{name}, which is not set"
            raise ValueError(f"init_distributed({name.lower()}={given}) contradicts {found}")
    _join()


def is_initialized() -> bool:
    """Returns whether this process has joined its job."""
    return _native.is_joined()


def is_available() -> bool:
    """Returns True: the package has its collectives."""
    return True


def _check_group(group) -> None:
    if group is not None and group is not torch.distributed.group.WORLD:
        raise NotImplementedError("dsrun.comm has the group of all ranks only: use torch.distributed "
                                  "for others")


def get_rank(group: torch.distributed.ProcessGroup | None = None) -> int:
    """Returns this rank, among all of the job."""
    _check_group(group)
    _join()
    return _native.rank()


def get_world_size(group: torch.distributed.ProcessGroup | None = None) -> int:
    """Returns the number of ranks of the job."""
    _check_group(group)
    _join()
    return _native.world_size()


def get_local_rank() -> int:
    """Returns this rank, among the ranks of its host."""
    _join()
    return _native.local_rank()


def barrier(group: torch.distributed.ProcessGroup | None = None) -> None:
    """Waits for all ranks."""
    _check_group(group)
    _join()
    _native.barrier()


def broadcast(tensor: torch.Tensor, src: int,
              group: torch.distributed.ProcessGroup | None = None) -> None:
    """Copies the tensor of rank `src` into the contiguous `tensor` of every rank."""
    _check_group(group)
    if not tensor.is_contiguous():
        raise ValueError("broadcast needs a contiguous tensor")
    if tensor.device != get_device():
        raise ValueError(f"broadcast needs a tensor on {get_device()}, not on {tensor.device}")
    _native.broadcast(tensor.detach(), src)
