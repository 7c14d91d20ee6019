// Programs of others, each started as its users start it, with dsrun in the place of their
// launcher: PyTorch DDP, DeepSpeed, a Hugging Face Trainer and Lightning in their usual way, and
// the distributed tests that the wheels of PyTorch and Accelerate hold.
//
// They need the scratch environment of scripts/bench/setup_peers.sh; DS_PEER_PYTHON names the
// python of another.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

std::string PeerPython() {
  const char* named = std::getenv("DS_PEER_PYTHON");
  return named != nullptr ? named : DS_SOURCE_DIR "/.deps/peers/bin/python";
}

class PeerProgramsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access(PeerPython().c_str(), X_OK) != 0) {
      SkipWithout("peers", "no " + PeerPython() + "; make it with scripts/bench/setup_peers.sh");
    }
  }
  // `dsrun --num_gpus 2 flags PROGRAM arguments`; it ends well.
  void RunOnTwoRanks(const Strings& flags, const Strings& program) {
    Strings command = {DS_BIN_DIR "/dsrun", "--num_gpus",   "2",        "--device",  "cpu",
                       "--run_dir",         run().string(), "--python", PeerPython()};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), program.begin(), program.end());
    const ProgramResult result = RunProgram(
        command,
        {.environment = {"DS_ACCELERATOR=cpu", "ACCELERATE_USE_CPU=true", "CUDA_VISIBLE_DEVICES="},
         .working_directory = DS_SOURCE_DIR "/tests/peers/programs",
         .time_limit = std::chrono::seconds(900)});
    EXPECT_EQ(result.status, 0) << result.out << result.err;
  }
  std::string OutputOf(const std::string& rank) const {
    return ReadFile(run() / "logs/0" / ("rank-0000" + rank + ".out")).value();
  }
  // ... and both ranks say that they have finished.
  void ExpectTwoRanksFinish(const Strings& flags, const Strings& program) {
    RunOnTwoRanks(flags, program);
    for (const std::string rank : {"0", "1"}) {
      EXPECT_THAT(OutputOf(rank), HasSubstr("rank " + rank + " of 2 finished, local rank " + rank));
    }
  }
  std::string Folder(const std::string& name) const { return (folder_.path() / name).string(); }
  fs::path run() const { return folder_.path() / "run"; }

  TemporaryFolder folder_;
};

TEST_F(PeerProgramsTest, PyTorchDdp) { ExpectTwoRanksFinish({}, {"torch_ddp.py"}); }

TEST_F(PeerProgramsTest, PyTorchDdpAsAModule) { ExpectTwoRanksFinish({"--module"}, {"torch_ddp"}); }

TEST_F(PeerProgramsTest, DeepSpeed) {
  ExpectTwoRanksFinish({"--pass_local_rank"},
                       {"deepspeed_cpu.py", "--deepspeed", "--deepspeed_config", "ds_config.json"});
}

TEST_F(PeerProgramsTest, HuggingFaceTrainer) {
  ExpectTwoRanksFinish({}, {"hf_trainer.py", Folder("out")});
}

TEST_F(PeerProgramsTest, Lightning) {
  ExpectTwoRanksFinish({}, {"lightning_boring.py", Folder("out")});
}

TEST_F(PeerProgramsTest, PyTorchsOwnTests) {
  ExpectTwoRanksFinish(
      {}, {"torch_own_tests.py", Folder("out"), "test_get_rank", "test_barrier", "test_broadcast",
           "test_all_reduce_sum", "test_reduce_max", "test_all_gather",
           "test_all_gather_object_default_pg", "test_scatter", "test_gather", "test_send_recv",
           "test_isend", "test_destroy_group", "test_DistributedDataParallel_requires_grad",
           "test_DistributedDataParallelCPU"});
}

TEST_F(PeerProgramsTest, AcceleratesOwnTests) {
  RunOnTwoRanks({"--module"}, {"accelerate.test_utils.scripts.test_script"});
  for (const std::string rank : {"0", "1"}) {
    EXPECT_THAT(OutputOf(rank), HasSubstr("Num processes: 2\nProcess index: " + rank));
    EXPECT_THAT(OutputOf(rank), HasSubstr("FP16 training check."));
  }
  EXPECT_THAT(OutputOf("0"), HasSubstr("same results on one CPU or distributed setup with batch"));
}

TEST_F(PeerProgramsTest, AcceleratesOwnTestsOfAccumulation) {
  RunOnTwoRanks({"--module"}, {"accelerate.test_utils.scripts.test_sync"});
  EXPECT_THAT(OutputOf("0"), HasSubstr("**Test Distributed `no_sync` context manager**"));
}

}  // namespace
}  // namespace ds::testing
