"""The variables of torchrun, for ranks that mpirun, mpiexec or srun has started.

DeepSpeed asks MPI for the rank and for rank 0's address. Here both follow from the variables that the
starters set, so ranks on one host agree without communication.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

DEFAULT_PORT = 29500  # DeepSpeed's, where neither MASTER_PORT nor distributed_port is given


class _Starter(NamedTuple):
    """What a starter calls the numbers of a rank. Each has the names that may hold it, the first wins."""

    name: str
    rank: str
    size: str
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...]


# The first that has set its size has started the rank: mpirun starts its own daemons by srun.
_STARTERS = (
    _Starter("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_LOCAL_SIZE",)),
    _Starter("MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
             ("MV2_COMM_WORLD_LOCAL_RANK",), ("MV2_COMM_WORLD_LOCAL_SIZE",)),
    _Starter("mpiexec", "PMI_RANK", "PMI_SIZE", ("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"),
             ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE")),
    # Not SLURM_NTASKS, which a batch script has, too: srun alone sets the size of a step.
    _Starter("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_LOCALID",), ()),
)


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except (KeyError, ValueError):
        raise RuntimeError(f"environment variable {name}={environment.get(name, '')!r} is not a whole "
                           "number") from None


def _find_starter(environment: Mapping[str, str]) -> _Starter | None:
    """The starter of this rank of several; None for a single one, and for ranks of torchrun or dsrun."""
    if "TORCHELASTIC_RUN_ID" in environment and "RANK" in environment:
        return None  # they may run once on each host, started by mpirun or srun
    starter = next((each for each in _STARTERS if each.size in environment), None)
    return starter if starter is not None and _number(environment, starter.size) > 1 else None


def _find_local(environment: Mapping[str, str], starter: _Starter) -> dict[str, int]:
    """LOCAL_RANK and LOCAL_WORLD_SIZE of the rank."""
    found = {}
    for name, sources in (("LOCAL_RANK", starter.local_rank), ("LOCAL_WORLD_SIZE", starter.local_size)):
        source = next((each for each in (*sources, name) if each in environment), None)
        if source is not None:
            found[name] = _number(environment, source)
        elif name == "LOCAL_WORLD_SIZE" and environment.get("SLURM_STEP_NUM_NODES") == "1":
            found[name] = _number(environment, starter.size)
        else:
            raise RuntimeError(f"{starter.name} has started {environment[starter.size]} ranks "
                               f"({starter.size}) and does not say which are on this host: export {name}, "
                               f"or start them with dsrun -n {environment[starter.size]}")
    return found


def find_variables(environment: Mapping[str, str], port: int | None = None) -> dict[str, str]:
    """Returns torchrun's variables that `environment` lacks, if it is that of one of several MPI ranks.

    `port`, if given, is MASTER_PORT if that is not set. Raises RuntimeError if variables contradict each other, and
    for ranks on several hosts, which need dsrun to meet.
    """
    starter = _find_starter(environment)
    if starter is None:
        return {}
    size = _number(environment, starter.size)
    numbers = {"RANK": _number(environment, starter.rank), "WORLD_SIZE": size}
    for name, source in (("RANK", starter.rank), ("WORLD_SIZE", starter.size)):
        if name in environment and _number(environment, name) != numbers[name]:
            raise RuntimeError(f"{name}={environment[name]} contradicts {source}={environment[source]} of "
                               f"{starter.name}: unset RANK and WORLD_SIZE, or start the ranks with dsrun")
    numbers |= _find_local(environment, starter)
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        if name in environment and _number(environment, name) != numbers[name]:
            raise RuntimeError(f"{name}={environment[name]} contradicts {starter.name}, which says "
                               f"{numbers[name]}: unset {name}")
    if numbers["LOCAL_WORLD_SIZE"] != size:
        raise RuntimeError(f"{starter.name} has started {size} ranks ({starter.size}), "
                           f"{numbers['LOCAL_WORLD_SIZE']} of them on this host: ranks on several hosts "
                           "meet through dsrun; start them once with dsrun --hostfile (dsrun help hosts)")
    found = {name: str(number) for name, number in numbers.items()}
    found["MASTER_ADDR"] = "127.0.0.1"
    if port is not None:
        found["MASTER_PORT"] = str(port)
    return {name: value for name, value in found.items() if name not in environment}


def set_variables(port: int | None = DEFAULT_PORT) -> None:
    """Sets what find_variables returns in this process: PyTorch, Accelerate and scripts read it, too."""
    os.environ.update(find_variables(os.environ, port))


def refuse_unknown_rank() -> None:
    """Raises RuntimeError where only MPI's variables say that the process is one of several ranks."""
    missing = find_variables(os.environ)
    if "RANK" in missing or "WORLD_SIZE" in missing:
        raise RuntimeError(f"init_distributed(auto_mpi_discovery=False): RANK and WORLD_SIZE are not set, "
                           f"and this is one of {missing.get('WORLD_SIZE', 'several')} ranks of MPI: set "
                           "both, leave the argument out, or start the ranks with dsrun")
