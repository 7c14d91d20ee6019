"""How each launcher starts N ranks on this host: what scripts/bench/launch measures.

A launcher is a name, what starts it (None when it is not installed, with what would install it), and how it
tags the ranks' output. Nothing here starts anything.
"""

import dataclasses
import os
import shutil
from typing import Callable, Optional


@dataclasses.dataclass
class Launcher:
    name: str
    command: Optional[Callable]  # (ranks, argv of a rank, tagged) -> argv
    missing: str = ""            # why there is no command, and what to do
    environment: dict = dataclasses.field(default_factory=dict)
    slow: bool = False           # seconds a start: fewer rounds


def program(name, package):
    path = shutil.which(name)
    return path, "" if path else f"no {name}: apt-get install {package}"


def hydra():
    path, missing = program("mpiexec.hydra", "mpich")
    return Launcher("hydra (MPICH)", path and (lambda n, argv, tagged:
                    [path, *(["-prepend-rank"] if tagged else []), "-n", str(n), *argv]), missing)


def openmpi():
    path, missing = program("mpirun.openmpi", "openmpi-bin")
    return Launcher("mpirun (Open MPI)", path and (lambda n, argv, tagged:
                    [path, "--allow-run-as-root", "--oversubscribe", *(["--tag-output"] if tagged else []),
                     "-n", str(n), *argv]), missing)


def parallel():
    path, missing = program("parallel", "parallel")
    return Launcher("GNU parallel", path and (lambda n, argv, tagged:
                    [path, "--will-cite", "-j", str(n), "--halt", "now,fail=1", "--line-buffer",
                     *(["--tag"] if tagged else []), *argv, "#", "{}", ":::", *map(str, range(n))]), missing,
                    {"PARALLEL_HOME": "/tmp"})


def srun(folder):
    """Inside a private one-node cluster that scripts/bench/launch has started; see slurm.py."""
    path, missing = program("srun", "slurmctld slurmd slurm-client")
    if path and folder is None:
        path, missing = None, "srun: no private cluster could be started"
    return Launcher("srun", path and (lambda n, argv, tagged:
                    [path, "-n", str(n), "--overcommit", "--kill-on-bad-exit=1", *(["--label"] if tagged else []), *argv]), missing,
                    {"SLURM_CONF": f"{folder}/slurm.conf"} if folder else {})


def torchrun(python):
    ready = os.access(python, os.X_OK)
    return Launcher("torchrun", ready and (lambda n, argv, tagged:
                    [str(python), "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={n}",
                     *(["--tee", "3"] if tagged else []), "--no-python", *argv]) or None,
                    "" if ready else "no torchrun: scripts/bench/setup_peers.sh", {"OMP_NUM_THREADS": "1"}, slow=True)


def deepspeed(python):
    path = python.parent / "deepspeed"
    ready = os.access(path, os.X_OK)
    return Launcher("deepspeed", ready and (lambda n, argv, tagged:
                    [str(python), str(path), "--num_gpus", str(n), "--no_python", "--no_local_rank", *argv]) or None,
                    "" if ready else "no deepspeed: scripts/bench/setup_peers.sh",
                    {"DS_ACCELERATOR": "cpu", "PATH": f"{python.parent}:{os.environ['PATH']}"}, slow=True)


def dsrun(path, run_dir, grace=None):
    """`run_dir()` names a fresh run directory for each call."""
    flags = ["--grace_seconds", str(grace)] if grace is not None else []
    return Launcher("dsrun", lambda n, argv, tagged: [str(path), "--device", "cpu", "--num_gpus", str(n), "--run_dir",
                                                      run_dir(), *flags, "run", "--", *argv])
