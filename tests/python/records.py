"""The records of a script that runs on dsrun.compat and on DeepSpeed, as  SCRIPT ENGINE ."""

import atexit
import json
import os
import sys

import torch

torch.set_num_threads(1)
ENGINE = sys.argv[1]
RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))

if ENGINE == "dsrun":
    import dsrun.compat
    dsrun.compat.install()
else:
    # Else the end of the process may abort.
    atexit.register(lambda: torch.distributed.is_initialized()
                    and torch.distributed.destroy_process_group())


def log(case, **values):
    """Prints the values of rank 0."""
    if RANK == 0:
        print("LOG", json.dumps({"case": case, **values}), flush=True)
