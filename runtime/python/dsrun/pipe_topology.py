"""The places of ranks in a grid of pipeline stages and data-parallel copies."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from itertools import product

from . import comm


class ProcessTopology:
    """Maps coordinates to ranks: the last axis varies fastest."""

    def __init__(self, axes: list[str], dims: list[int]):
        self.axes = list(axes)
        self.dims = list(dims)
        self.ProcessCoord = namedtuple("ProcessCoord", self.axes)
        places = product(*(range(size) for size in self.dims))
        self.mapping = {self.ProcessCoord(*place): rank for rank, place in enumerate(places)}

    def get_rank(self, **coord_kwargs: int) -> int:
        """Returns the rank at a full coordinate."""
        if set(coord_kwargs) != set(self.axes):
            raise ValueError(f"get_rank() needs all of {self.axes}; filter_match() takes some")
        return self.mapping[self.ProcessCoord(**coord_kwargs)]

    def get_coord(self, rank: int) -> tuple:
        """Returns the coordinate of a rank, as a named tuple."""
        for coord, at in self.mapping.items():
            if at == rank:
                return coord
        raise ValueError(f"rank {rank} is not in the topology")

    def get_axis_names(self) -> list[str]:
        """The names of the axes, the one that varies fastest last."""
        return self.axes

    def get_dim(self, axis: str) -> int:
        """Returns the size along an axis; 0 if there is no such axis."""
        return self.dims[self.axes.index(axis)] if axis in self.axes else 0

    def filter_match(self, **filter_kwargs: int) -> list[int]:
        """Returns the ranks with these values in their coordinates."""
        return [rank for coord, rank in self.mapping.items()
                if all(getattr(coord, axis) == value for axis, value in filter_kwargs.items())]

    def get_axis_list(self, axis: str, idx: int) -> list[int]:
        """Returns the ranks with the coordinate `idx` along an axis."""
        return self.filter_match(**{axis: idx})

    def get_axis_comm_lists(self, axis: str) -> list[list[int]]:
        """Returns the groups of ranks that differ only along an axis."""
        if axis not in self.axes:
            return []
        others = [name for name in self.axes if name != axis]
        return [self.filter_match(**dict(zip(others, place)))
                for place in product(*(range(self.get_dim(name)) for name in others))]

    def get_rank_repr(self, rank: int, omit_axes: Sequence[str] = ("data", "pipe"),
                      inner_sep: str = "_", outer_sep: str = "-") -> str:
        """Returns the coordinate as text, such as "model_00"."""
        coord = self.get_coord(rank)
        return outer_sep.join(f"{axis}{inner_sep}{getattr(coord, axis):02d}"
                              for axis in self.axes if axis not in omit_axes)

    def world_size(self) -> int:
        """The number of ranks, the product of all sizes."""
        return len(self.mapping)

    def __str__(self) -> str:
        return str(self.mapping)


class PipeDataParallelTopology(ProcessTopology):
    """Stages of neighbouring ranks, which hold the same layers."""

    def __init__(self, num_pp: int, num_dp: int):
        super().__init__(["pipe", "data"], [num_pp, num_dp])


class PipeModelDataParallelTopology(ProcessTopology):
    """The same with tensor parallelism; PipelineModule takes it with num_mp=1."""

    def __init__(self, num_pp: int, num_mp: int, num_dp: int):
        super().__init__(["pipe", "data", "model"], [num_pp, num_dp, num_mp])


def check_topology(topology: ProcessTopology) -> None:
    """Raises NotImplementedError unless the engine places the ranks as the topology does."""
    stages, copies = topology.get_dim("pipe"), max(topology.get_dim("data"), 1)
    if topology.world_size() != comm.get_world_size():
        raise RuntimeError(f"the topology has {topology.world_size()} ranks, and the job "
                           f"{comm.get_world_size()}")
    if stages * copies != topology.world_size():
        raise NotImplementedError("PipelineModule: a topology with axes of more than one rank "
                                  "besides pipe and data; the layers are not split further")
    for coord, rank in topology.mapping.items():
        if rank != coord.pipe * copies + getattr(coord, "data", 0):
            raise NotImplementedError("PipelineModule: a topology in which the ranks of a stage "
                                      "are no neighbours; use PipeDataParallelTopology")


class PipelineParallelGrid:
    """This rank's place in a topology, by the names of Megatron's `mpu`."""

    def __init__(self, topology: ProcessTopology):
        self._topo = topology
        self.global_rank = comm.get_rank()
        self.world_size = comm.get_world_size()
        self.pipe_parallel_size = max(topology.get_dim("pipe"), 1)
        self.data_parallel_size = max(topology.get_dim("data"), 1)
        self.model_parallel_size = self.slice_parallel_size = 1
        coord = topology.get_coord(self.global_rank)
        self.stage_id = coord.pipe
        self.data_parallel_id = getattr(coord, "data", 0)
        # The ranks of this rank's pipeline, by stage, and the ranks of its stage.
        self.pp_group = [self.stage_to_global(i) for i in range(self.pipe_parallel_size)]
        self.dp_group = topology.filter_match(pipe=self.stage_id)

    def stage_to_global(self, stage_id: int, **kwargs: int) -> int:
        """Returns the rank of a stage with this rank's other coordinates, or `kwargs`."""
        coord = self._topo.get_coord(self.global_rank)._asdict()
        return self._topo.get_rank(**{**coord, **kwargs, "pipe": stage_id})

    def topology(self) -> ProcessTopology:
        """The topology of which this is a place."""
        return self._topo

    def get_global_rank(self) -> int:
        """This rank, among all of the job."""
        return self.global_rank

    def get_stage_id(self) -> int:
        """This rank's stage, from 0."""
        return self.stage_id

    get_pipe_parallel_rank = get_pipeline_model_parallel_rank = get_stage_id

    def get_pipe_parallel_world_size(self) -> int:
        """The number of stages."""
        return self.pipe_parallel_size

    get_pipeline_model_parallel_world_size = get_pipe_parallel_world_size

    def get_data_parallel_id(self) -> int:
        """The number of this rank's copy of the pipeline, from 0."""
        return self.data_parallel_id

    get_data_parallel_rank = get_data_parallel_id

    def get_data_parallel_world_size(self) -> int:
        """The number of copies of the pipeline."""
        return self.data_parallel_size

    def get_data_parallel_group_ranks(self) -> list[int]:
        """The ranks with this rank's stage, ascending."""
        return self.dp_group

    def get_slice_parallel_rank(self) -> int:
        """Returns 0: layers are not split further."""
        return 0

    get_tensor_model_parallel_rank = get_slice_parallel_rank

    def get_slice_parallel_world_size(self) -> int:
        """Returns 1: layers are not split further."""
        return 1

    get_tensor_model_parallel_world_size = get_slice_parallel_world_size

    # As in DeepSpeed, all stages together are a model's ranks.
    get_model_parallel_rank = get_stage_id
    get_model_parallel_world_size = get_pipe_parallel_world_size
