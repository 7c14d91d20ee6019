"""Tests of torch.distributed that PyTorch's wheel holds: the ranks run those named behind the folder, in the
processes that they are, not in some that PyTorch would start."""

import os
import sys
import unittest

import torch.distributed as dist
from torch.testing._internal.common_utils import set_rng_seed

folder, names = sys.argv[1], sys.argv[2:]
os.environ.update(BACKEND="gloo", TEMP_DIR=folder)  # read at the import
for needed in ("barrier", "test_dir"):
    os.makedirs(os.path.join(folder, needed), exist_ok=True)

from torch.testing._internal.distributed import distributed_test  # noqa: E402


class OwnTest(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """As PyTorch puts them together, but for what starts processes."""

    def setUp(self):
        self.rank = dist.get_rank()
        set_rng_seed()

    def tearDown(self):
        dist.barrier()


def main():
    assert dist.is_torchelastic_launched()
    dist.init_process_group("gloo")
    suite = unittest.TestSuite(OwnTest(name) for name in names)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    assert result.wasSuccessful() and not result.skipped
    assert result.testsRun == len(names)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} finished, local rank {os.environ['LOCAL_RANK']}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
