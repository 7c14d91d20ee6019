// Programs of others, each started as its users start it, with dsrun in the place of their
// launcher: PyTorch DDP, DeepSpeed, a Hugging Face Trainer and Lightning in their usual way, and
// the distributed tests that the wheels of PyTorch and Accelerate hold.
//
// They need the whole scratch environment of scripts/bench/setup_peers.sh, which says whether it is
// there; DS_PEER_PYTHON names the python of another. Of Accelerate's scripts these are the ones
// that work on CPUs: under torchrun, too, test_distributed_data_loop never ends there, and
// test_ddp_comm_hook asks for GPUs.
//
// No wheel holds a program that trains with DeepSpeed, a Trainer or Lightning on CPUs and without
// a network; those three are ours, around the libraries' own models and loops. Accelerate's scripts
// with DeepSpeed and a Trainer (external_deps/test_ds_multiple_model, test_zero3_integration, ...)
// download models and data and ask for NCCL; its others make a world of one process under
// ACCELERATE_USE_DEEPSPEED where there is no GPU. ds_bench imports files that DeepSpeed's wheel
// lacks, and deepspeed.compile.profilers.comm_profile times with events that no CPU has.

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

class PeerProgramsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* named = std::getenv("DS_PEER_PYTHON"); named != nullptr) {
      python_ = named;
      if (::access(named, X_OK) != 0) SkipWithout("peers", "DS_PEER_PYTHON: no " + python_);
      return;
    }
    const ProgramResult check =
        RunProgram({DS_SOURCE_DIR "/scripts/bench/setup_peers.sh", "--check"});
    if (check.status != 0) return SkipWithout("peers", check.err);
    python_ = check.out.substr(0, check.out.find('\n'));
  }
  // `dsrun --num_gpus 2 flags PROGRAM arguments`; it ends well.
  void RunOnTwoRanks(const Strings& flags, const Strings& program) {
    Strings command = {DS_BIN_DIR "/dsrun", "--num_gpus",   "2",        "--device", "cpu",
                       "--run_dir",         run().string(), "--python", python_};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), program.begin(), program.end());
    const ProgramResult result = RunProgram(
        command,
        // DeepSpeed builds an extension. PyTorch waits without end for a build in the user's folder
        // whose program was killed.
        {.environment = {"DS_ACCELERATOR=cpu", "ACCELERATE_USE_CPU=true",
                         "CUDA_VISIBLE_DEVICES=", "TORCH_EXTENSIONS_DIR=" + Folder("extensions")},
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
  std::string python_;  // with the programs that it is about
};

// What is in force is a ds_config that DeepSpeed's own reader takes, and reads alike.
TEST_F(PeerProgramsTest, DeepSpeedReadsTheResolvedConfig) {
  for (const std::string stage : {"0", "2", "3"}) {
    const fs::path config = folder_.path() / ("ds" + stage + ".json");
    ASSERT_TRUE(WriteFileAtomically(config.string(), R"({"train_batch_size": 8, "bf16": {"enabled":
        true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "scheduler": {"type":
        "WarmupLR", "params": {"warmup_num_steps": 10}}, "zero_optimization": {"stage": )" +
                                                         stage + "}}")
                    .ok());
    const ProgramResult check =
        RunProgram({DS_BIN_DIR "/dsrun", "check", config.string(), "--json", "--world_size", "1"});
    ASSERT_EQ(check.status, 0) << check.err;
    const fs::path resolved = folder_.path() / ("resolved" + stage + ".json");
    ASSERT_TRUE(WriteFileAtomically(resolved.string(), check.out).ok());
    const ProgramResult read =
        RunProgram({python_, DS_SOURCE_DIR "/scripts/goldens/read_resolved_config.py",
                    resolved.string(), config.string()},
                   {.time_limit = std::chrono::seconds(900)});
    EXPECT_EQ(read.status, 0) << read.out << read.err;
  }
}

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
  RunOnTwoRanks({}, {"accelerate_own_tests.py", "accelerate.test_utils.scripts.test_script"});
  for (const std::string rank : {"0", "1"}) {
    EXPECT_THAT(OutputOf(rank), HasSubstr("Num processes: 2\nProcess index: " + rank));
    EXPECT_THAT(OutputOf(rank), HasSubstr("FP16 training check."));
  }
  EXPECT_THAT(OutputOf("0"), HasSubstr("same results on one CPU or distributed setup with batch"));
}

TEST_F(PeerProgramsTest, AcceleratesOwnTestsOfAccumulation) {
  RunOnTwoRanks({}, {"accelerate_own_tests.py", "accelerate.test_utils.scripts.test_sync"});
  EXPECT_THAT(OutputOf("0"), HasSubstr("**Test Distributed `no_sync` context manager**"));
}

TEST_F(PeerProgramsTest, AcceleratesOwnTestsOfCollectives) {
  RunOnTwoRanks({}, {"accelerate_own_tests.py", "accelerate.test_utils.scripts.test_ops"});
  for (const std::string rank : {"0", "1"}) {
    for (const std::string what :
         {"gather_object", "gather non-contiguous", "broadcast", "pad_across_processes",
          "reduce_sum", "reduce_mean", "op_checker", "sending tensors across devices"}) {
      EXPECT_THAT(OutputOf(rank), HasSubstr("testing " + what + "\n"));
    }
  }
}

}  // namespace
}  // namespace ds::testing
