"""One of the distributed test scripts that Accelerate's wheel holds, as it is: the module named first.

Those scripts leave the process group to the interpreter's end, where a thread of gloo's that still runs
aborts a rank now and then, under torchrun, too; here it is released, as torch_ddp.py does.
"""

import gc
import runpy
import sys

import torch


def main():
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    gc.collect()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
