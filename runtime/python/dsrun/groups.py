"""DeepSpeed's ``deepspeed.utils.groups``: the ranks that share a dimension of parallelism.

Python modules are trained with data parallelism: all ranks are data-parallel ranks, and each is
alone in every other dimension. Groups are those of torch.distributed, None where it is not
initialized.
"""

from __future__ import annotations

import torch.distributed as dist

from . import comm

mpu = None
_alone = None


def _world_group():
    return dist.group.WORLD if dist.is_initialized() else None


def _group_of_this_rank():
    """The group of this rank alone. The first call is collective."""
    global _alone
    if _alone is None and dist.is_initialized():
        _alone, _ = dist.new_subgroups(1)
    return _alone


def _world_size() -> int:
    return comm.get_world_size()


def _rank() -> int:
    return comm.get_rank()


def _one() -> int:
    return 1


def _zero() -> int:
    return 0


def _check_expert_group(group_name: str) -> None:
    if group_name != "ep_size_1":
        raise ValueError(f"there is no expert group {group_name}: each rank has all experts, and "
                         "their group is ep_size_1")


def _get_expert_parallel_group(group_name: str):
    _check_expert_group(group_name)
    return _group_of_this_rank()


def _get_expert_parallel_world_size(group_name: str) -> int:
    _check_expert_group(group_name)
    return 1


def _get_expert_parallel_rank(group_name: str) -> int:
    _check_expert_group(group_name)
    return 0


def _get_expert_data_parallel_group(group_name: str):
    _check_expert_group(group_name)
    return _world_group()


def _get_expert_data_parallel_world_size(group_name: str) -> int:
    _check_expert_group(group_name)
    return _world_size()


def _get_expert_data_parallel_rank(group_name: str) -> int:
    _check_expert_group(group_name)
    return _rank()


def _get_data_parallel_group_ranks() -> list[int]:
    return list(range(_world_size()))


def _get_broadcast_src_rank() -> int:
    return 0


def _create_expert_and_data_parallel(expert_parallel_size_: int,
                                     use_data_before_expert_parallel_: bool = False) -> None:
    """Checks that experts are not divided: there is nothing to create."""
    _check_expert_group(f"ep_size_{expert_parallel_size_}")


def initialize(ep_size: int = 1, mpu=None) -> None:
    """Checks that nothing is divided but data, as DeepSpeed's deprecated function would do it."""
    if mpu is not None:
        raise NotImplementedError("groups.initialize(mpu=...): Python modules are trained with "
                                  "data parallelism and ZeRO")
    _check_expert_group(f"ep_size_{ep_size}")


_get_data_parallel_group = get_data_parallel_group = _world_group
_get_sequence_data_parallel_group = _world_group
_get_data_parallel_world_size = get_data_parallel_world_size = _world_size
_get_sequence_data_parallel_world_size = _world_size
_get_data_parallel_rank = get_data_parallel_rank = _rank
_get_sequence_data_parallel_rank = _rank
_get_sequence_parallel_group = _group_of_this_rank
get_model_parallel_group = get_tensor_model_parallel_group = _group_of_this_rank
_get_sequence_parallel_world_size = _get_model_parallel_world_size = _one
_get_expert_model_parallel_world_size = _one
get_model_parallel_world_size = get_tensor_model_parallel_world_size = _one
_get_sequence_parallel_rank = get_model_parallel_rank = get_tensor_model_parallel_rank = _zero
