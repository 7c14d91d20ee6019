// Programs of others, unmodified: PyTorch DDP, DeepSpeed and a Hugging Face Trainer, each started
// as its users start it, with dsrun in the place of their launcher.
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
      GTEST_SKIP() << "no " << PeerPython() << "; make it with scripts/bench/setup_peers.sh";
    }
  }
  // `dsrun --num_gpus 2 flags PROGRAM arguments`; both ranks say that they have finished.
  void ExpectTwoRanksFinish(const Strings& flags, const Strings& program) {
    Strings command = {DS_BIN_DIR "/dsrun", "--num_gpus",   "2",        "--device",  "cpu",
                       "--run_dir",         run().string(), "--python", PeerPython()};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), program.begin(), program.end());
    const ProgramResult result =
        RunProgram(command, {.environment = {"DS_ACCELERATOR=cpu", "CUDA_VISIBLE_DEVICES="},
                             .working_directory = DS_SOURCE_DIR "/tests/peers/programs",
                             .time_limit = std::chrono::seconds(900)});
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    for (const std::string rank : {"0", "1"}) {
      EXPECT_THAT(*ReadFile(run() / "logs/0" / ("rank-0000" + rank + ".out")),
                  HasSubstr("rank " + rank + " of 2 finished, local rank " + rank));
    }
  }
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
  ExpectTwoRanksFinish({}, {"hf_trainer.py", (folder_.path() / "out").string()});
}

}  // namespace
}  // namespace ds::testing
