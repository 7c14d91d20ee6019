"""DeepSpeed's ``deepspeed.utils.groups``: the ranks that share a dimension of parallelism.

All ranks are data-parallel ranks, and each is alone in every other dimension, but for experts
(moe.MoE with ep_size above 1) and for pipelines: initialize() of a PipelineModule sets `mpu` to the
module's grid. As in DeepSpeed, a pipeline's stages are the ranks of a model. Groups are those of
torch.distributed, None where it is not initialized.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.distributed as dist

from . import comm

mpu = None  # the grid of the engine that was made last, if that is a pipeline's
_alone = None


class _ExpertRanks(NamedTuple):
    """How the ranks share experts. Both lists divide all ranks."""

    sharing: tuple[tuple[int, ...], ...]  # ranks that have all experts together
    copies: tuple[tuple[int, ...], ...]  # ranks with the same experts


_expert_ranks: dict[str, _ExpertRanks] = {}
_groups_of_torch: dict[tuple[tuple[int, ...], ...], object] = {}


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


def _ranks_of_experts(group_name: str) -> _ExpertRanks:
    if group_name == "ep_size_1":
        return _divide(1, False)
    if group_name not in _expert_ranks:
        raise ValueError(f"there is no expert group {group_name}: initialize() makes the groups of "
                         "the model's layers, and MoE.set_deepspeed_parallelism() those of one")
    return _expert_ranks[group_name]


def _own(parts: tuple[tuple[int, ...], ...]) -> list[int]:
    """The part with this rank."""
    return list(next(part for part in parts if _rank() in part))


def _group_of_torch(parts: tuple[tuple[int, ...], ...]):
    """The group of torch.distributed with this rank. The first call is collective."""
    if len(parts) == 1 or not dist.is_initialized():
        return _world_group()
    if len(parts) == _world_size():
        return _group_of_this_rank()
    if parts not in _groups_of_torch:
        made = [dist.new_group(part) for part in parts]
        _groups_of_torch[parts] = next(group for group, part in zip(made, parts) if _rank() in part)
    return _groups_of_torch[parts]


def _get_expert_parallel_group(group_name: str):
    return _group_of_torch(_ranks_of_experts(group_name).sharing)


def _get_expert_parallel_group_ranks(group_name: str) -> list[int]:
    return _own(_ranks_of_experts(group_name).sharing)


def _get_expert_parallel_world_size(group_name: str) -> int:
    return len(_get_expert_parallel_group_ranks(group_name))


def _get_expert_parallel_rank(group_name: str) -> int:
    return _get_expert_parallel_group_ranks(group_name).index(_rank())


def _get_expert_data_parallel_group(group_name: str):
    return _group_of_torch(_ranks_of_experts(group_name).copies)


def _get_expert_data_parallel_group_ranks(group_name: str) -> list[int]:
    return _own(_ranks_of_experts(group_name).copies)


def _get_expert_data_parallel_world_size(group_name: str) -> int:
    return len(_get_expert_data_parallel_group_ranks(group_name))


def _get_expert_data_parallel_rank(group_name: str) -> int:
    return _get_expert_data_parallel_group_ranks(group_name).index(_rank())


def _get_expert_broadcast_src_rank(group_name: str) -> int:
    return _get_expert_data_parallel_group_ranks(group_name)[0]


def _data_parts() -> tuple[tuple[int, ...], ...]:
    """All ranks, divided into those that train copies of one model or stage."""
    if mpu is None:
        return (tuple(range(_world_size())),)
    return tuple(map(tuple, mpu.topology().get_axis_comm_lists("data"))) or tuple(
        (rank,) for rank in range(_world_size()))


def _model_parts() -> tuple[tuple[int, ...], ...]:
    """All ranks, divided into those that have one model together."""
    if mpu is None:
        return tuple((rank,) for rank in range(_world_size()))
    return tuple(map(tuple, mpu.topology().get_axis_comm_lists("pipe")))


def _get_data_parallel_group():
    return _group_of_torch(_data_parts())


def _get_data_parallel_group_ranks() -> list[int]:
    return _own(_data_parts())


def _get_data_parallel_world_size() -> int:
    return len(_get_data_parallel_group_ranks())


def _get_data_parallel_rank() -> int:
    return _get_data_parallel_group_ranks().index(_rank())


def _get_broadcast_src_rank() -> int:
    return _get_data_parallel_group_ranks()[0]


def get_model_parallel_group() -> dist.ProcessGroup | None:
    """The ranks with one model: a pipeline's, else this rank alone."""
    return _group_of_torch(_model_parts())


def get_model_parallel_world_size() -> int:
    """The number of ranks of `get_model_parallel_group`."""
    return len(_own(_model_parts()))


def get_model_parallel_rank() -> int:
    """This rank's place in `get_model_parallel_group`, from 0."""
    return _own(_model_parts()).index(_rank())


def _divide(ep_size: int, data_first: bool) -> _ExpertRanks:
    world = _world_size()
    if ep_size < 1 or world % ep_size != 0:
        raise ValueError(f"ep_size {ep_size} does not divide the {world} ranks: start a multiple "
                         "of it, or use another ep_size")
    near = tuple(zip(*[iter(range(world))] * (world // ep_size if data_first else ep_size)))
    far = tuple(zip(*near))
    return _ExpertRanks(far, near) if data_first else _ExpertRanks(near, far)


def _create_expert_and_data_parallel(expert_parallel_size_: int,
                                     use_data_before_expert_parallel_: bool = False) -> None:
    """Makes the expert group ep_size_N: of neighbours, or of ranks as far apart as can be."""
    _expert_ranks[f"ep_size_{expert_parallel_size_}"] = _divide(expert_parallel_size_,
                                                                use_data_before_expert_parallel_)


def initialize(ep_size: int = 1, mpu: object = None) -> None:
    """Makes the groups for experts, as DeepSpeed's deprecated function does."""
    if mpu is not None:
        raise NotImplementedError("groups.initialize(mpu=...): Python modules are trained with "
                                  "data parallelism and ZeRO")
    _create_expert_and_data_parallel(ep_size)


get_data_parallel_group = _get_sequence_data_parallel_group = _get_data_parallel_group
get_data_parallel_world_size = _get_data_parallel_world_size
_get_sequence_data_parallel_world_size = _get_data_parallel_world_size
get_data_parallel_rank = _get_sequence_data_parallel_rank = _get_data_parallel_rank
_get_model_parallel_world_size = get_model_parallel_world_size
_get_sequence_parallel_group = get_tensor_model_parallel_group = _group_of_this_rank
_get_sequence_parallel_world_size = _get_expert_model_parallel_world_size = _one
get_tensor_model_parallel_world_size = _one
_get_sequence_parallel_rank = get_tensor_model_parallel_rank = _zero
