"""A private Slurm cluster of one node on loopback, for the length of a benchmark.

Nothing of the machine's own Slurm, if it has one, is used: configuration, state, logs and sockets lie in the
folder that is given, and both daemons are children that are ended with it.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import time

CONFIG = """
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
KillWait=30
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=bench Nodes={host} Default=YES OverSubscribe=FORCE:64 State=UP
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextlib.contextmanager
def cluster(parent):
    """The folder of a running cluster; None when there is no Slurm here or it does not come up."""
    programs = [shutil.which(name) for name in ("slurmctld", "slurmd", "srun")]
    if None in programs:
        yield None
        return
    folder = os.path.join(parent, "slurm")
    for name in ("state", "spool"):
        os.makedirs(os.path.join(folder, name))
    ctld, slurmd = free_ports(2)
    with open(os.path.join(folder, "slurm.conf"), "w") as file:
        file.write(CONFIG.format(host=socket.gethostname().split(".")[0], ctld=ctld, slurmd=slurmd, folder=folder,
                                 cpus=os.cpu_count()))
    environment = dict(os.environ, SLURM_CONF=f"{folder}/slurm.conf")
    quiet = dict(env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    daemons = [subprocess.Popen([programs[0], "-D", "-c"], **quiet), subprocess.Popen([programs[1], "-D"], **quiet)]
    try:
        yield folder if comes_up(programs[2], quiet) else None
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def comes_up(srun, quiet, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if subprocess.run([srun, "--immediate=2", "-n", "1", "true"], timeout=5, **quiet).returncode == 0:
                return True
        except subprocess.TimeoutExpired:
            pass
        time.sleep(0.5)
    return False
