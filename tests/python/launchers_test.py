#!/usr/bin/env python3
"""Starts of Python's ranks by torchrun, mpirun, mpiexec and srun.

    launchers_test.py --bin DIR [--python PATH]      as trainers_test.py

MPI's starters need not be installed: the test starts two processes with their variables.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from trainers_test import parse_options

SCRIPT = """
import os, sys
from deepspeed import comm, initialize
import torch
class Model(torch.nn.Sequential):
    def forward(self, x):
        return super().forward(x).square().mean()
torch.manual_seed(0)
model = Model(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
engine, *_ = initialize(model=model, config={
    "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
    "zero_optimization": {"stage": 3}}, **eval(sys.argv[1] if len(sys.argv) > 1 else "{}"))
rank = comm.get_rank()
for step in range(2):
    engine.backward(engine(torch.randn(2, 4, generator=torch.Generator().manual_seed(2 * step + rank))))
    engine.step()
    sys.stdout.write(f"rank {rank} of {comm.get_world_size()}, local {comm.get_local_rank()}, loss "
                     f"{engine.step_result.loss} port {os.environ['MASTER_PORT']}\\n")
    sys.stdout.flush()
"""
# Prints, for each (variables, arguments) of the standard input, what init_distributed finds missing or refuses.
ANSWER = """
import json, os, sys
import dsrun
from dsrun import comm, mpi_ranks
comm._join = lambda: print(os.environ.get("RANK"), os.environ.get("WORLD_SIZE"), os.environ.get("LOCAL_RANK"),
                           os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"))
clean = dict(os.environ)
for variables, arguments in json.load(sys.stdin):
    os.environ.clear()
    os.environ.update(clean | variables)
    try:
        dsrun.init_distributed(**arguments)
    except (RuntimeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}")
"""
OURS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "{}", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": "{}"}
MVAPICH = {name.replace("OMPI", "MV2"): value for name, value in OPEN_MPI.items()}
HYDRA = {"PMI_SIZE": "2", "PMI_RANK": "{}", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "{}"}
SRUN = {"SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_PROCID": "{}",
        "SLURM_LOCALID": "{}"}
# The daemons of Open MPI are tasks of a step of Slurm; srun may also set PMI's variables.
MPIRUN_IN_SLURM = OPEN_MPI | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
SRUN_WITH_PMI = SRUN | {"PMI_SIZE": "2", "PMI_RANK": "{}"}


def environment(variables, rank=0):
    package = os.environ.get("PYTHONPATH", OPTIONS.bin.parent / "python")
    clean = {name: value for name, value in os.environ.items()
             if name not in OURS and not name.startswith(("OMPI_", "PMI_", "SLURM_", "MV2_"))}
    return clean | {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"} | {
        name: value.format(rank) for name, value in variables.items()}


def losses_of(outputs):
    """The losses of each rank's lines of a run on two ranks."""
    lines = sorted(line.split("rank ", 1)[1] for line in outputs.splitlines() if ", loss " in line)
    places = [line.split(", loss")[0] for line in lines]
    assert places == [f"{rank} of 2, local {rank}" for rank in (0, 0, 1, 1)], outputs
    return [line.split(", loss ")[1].split()[0] for line in lines]


class LaunchersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.script = pathlib.Path(cls.folder.name, "script.py")
        cls.script.write_text(SCRIPT)
        dsrun = [OPTIONS.bin / "dsrun", "--engine", "native", "-n", "2", "--run_dir", f"{cls.folder.name}/run",
                 "--python", OPTIONS.python, cls.script]
        cls.expected = losses_of(cls.run_command(dsrun))

    @classmethod
    def run_command(cls, command):
        result = subprocess.run(command, cwd=cls.folder.name, env=environment({}), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert result.returncode == 0, result.stdout
        return result.stdout

    def with_answers(self, table):
        """The line of ANSWER for each row (variables, arguments, ...), on rank 0, and the table."""
        cases = [[{name: value.format(0) for name, value in variables.items()}, arguments]
                 for variables, arguments, _ in table]
        result = subprocess.run([OPTIONS.python, "-c", ANSWER], env=environment({}), input=json.dumps(cases),
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines(), table

    def test_torchrun(self):
        self.assertEqual(losses_of(self.run_command(
            [OPTIONS.python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m",
             "dsrun.compat", self.script])), self.expected)

    def test_mpirun(self):
        port = str(20000 + os.getpid() % 10000)
        command = [OPTIONS.python, "-m", "dsrun.compat", self.script, f"dict(distributed_port={port})"]
        ranks = [subprocess.Popen(command, env=environment(OPEN_MPI, rank), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
        outputs = "".join(rank.communicate(timeout=300)[0] for rank in ranks)
        self.assertEqual(losses_of(outputs), self.expected)
        self.assertEqual(outputs.count(f"port {port}"), 4, outputs)

    def test_identities(self):
        single = {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0", "SLURM_STEP_NUM_TASKS": "2"}
        batch_script = {"SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
        torchrun = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "a"}
        partly = {"RANK": "0", "MASTER_ADDR": "here", "MASTER_PORT": "7"}
        first = "0 2 0 127.0.0.1 29500"
        for answer, (variables, _, expected) in zip(*self.with_answers([
                (OPEN_MPI, {}, first), (MVAPICH, {}, first), (HYDRA, {}, first), (SRUN, {}, first),
                (MPIRUN_IN_SLURM, {}, first), (SRUN_WITH_PMI, {"distributed_port": 5}, "0 2 0 127.0.0.1 5"),
                (OPEN_MPI | partly, {"distributed_port": 5, "rank": 0, "world_size": 2}, "0 2 0 here 7"),
                (single, {}, "None None None None None"),
                (batch_script, {"auto_mpi_discovery": False}, "None None None None None"),
                (OPEN_MPI | torchrun, {}, "0 1 None None None")])):
            with self.subTest(variables=variables):
                self.assertEqual(answer, expected)

    def test_what_is_not_one_job_is_refused(self):
        hosts = OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
        nowhere = {"PMI_SIZE": "2", "PMI_RANK": "0"}
        for answer, (variables, _, expected) in zip(*self.with_answers([
                (OPEN_MPI | {"RANK": "0", "WORLD_SIZE": "1"}, {}, "RuntimeError: WORLD_SIZE=1 contradicts "
                 "OMPI_COMM_WORLD_SIZE=2 of Open MPI's mpirun"),
                (HYDRA | {"RANK": "1", "WORLD_SIZE": "2"}, {}, "RuntimeError: RANK=1 contradicts PMI_RANK=0"),
                (SRUN | {"LOCAL_RANK": "1"}, {}, "RuntimeError: LOCAL_RANK=1 contradicts srun, which says 0"),
                (hosts, {}, "RuntimeError: Open MPI's mpirun has started 2 ranks (OMPI_COMM_WORLD_SIZE), 1 of them"),
                (nowhere, {}, "RuntimeError: mpiexec has started 2 ranks (PMI_SIZE) and does not say which"),
                (OPEN_MPI, {"auto_mpi_discovery": False}, "RuntimeError: init_distributed(auto_mpi_discovery=False): "
                 "RANK and WORLD_SIZE are not set, and this is one of 2 ranks of MPI"),
                (OPEN_MPI, {"rank": 1}, "ValueError: init_distributed(rank=1) contradicts RANK=0"),
                (OPEN_MPI, {"world_size": 4}, "ValueError: init_distributed(world_size=4) contradicts WORLD_SIZE=2"),
                ({}, {"rank": 1}, "ValueError: init_distributed(rank=1) contradicts RANK, which is not set"),
                ({"PMI_SIZE": "two"}, {}, "RuntimeError: environment variable PMI_SIZE='two' is not a whole number"),
                ({}, {"dist_init_required": False}, "RuntimeError: init_distributed(dist_init_required=False), and")
        ])):
            with self.subTest(variables=variables):
                self.assertIn(expected, answer)


if __name__ == "__main__":
    OPTIONS = parse_options()
    unittest.main(argv=sys.argv[:1])
