"""The ranks of the job: DeepSpeed's ``deepspeed.comm`` as far as scripts use it."""

import os

import torch

from . import _native


def init_distributed(dist_backend=None, auto_mpi_discovery=True, distributed_port=29500,
                     verbose=True, timeout=None, init_method=None, dist_init_required=None,
                     config=None, rank=-1, world_size=-1):
    """Joins the job that the environment describes (RANK, WORLD_SIZE, ...); idempotent.

    The arguments of DeepSpeed are accepted. `rank` and `world_size`, if given, must be those of
    the environment. dsrun uses its own collectives, next to torch.distributed if the script uses
    that itself.
    """
    for name, given in (("RANK", rank), ("WORLD_SIZE", world_size)):
        if given >= 0 and int(os.environ.get(name, "0" if name == "RANK" else "1")) != given:
            raise ValueError(f"init_distributed({name.lower()}={given}) contradicts ${name}")
    _native.join()


def is_initialized() -> bool:
    return _native.is_joined()


is_available = is_initialized


def get_rank(group=None) -> int:
    return _native.rank()


def get_world_size(group=None) -> int:
    return _native.world_size()


def get_local_rank() -> int:
    return _native.local_rank()


def barrier(group=None) -> None:
    """Waits for all ranks."""
    _native.barrier()


def broadcast(tensor: torch.Tensor, src: int, group=None) -> None:
    """Copies the tensor of rank `src` into the contiguous `tensor` of every rank."""
    if not tensor.is_contiguous():
        raise ValueError("broadcast needs a contiguous tensor")
    _native.broadcast(tensor.detach(), src)
