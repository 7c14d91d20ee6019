// The Python package dsrun, trained on two ranks by scripts of tests/python. They need the scratch
// environment of scripts/bench/setup_peers.sh (PyTorch and transformers).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

class PythonPackageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ProgramResult check =
        RunProgram({DS_SOURCE_DIR "/scripts/bench/setup_peers.sh", "--check"});
    if (check.status != 0) return SkipWithout("peers", check.err);
    python_ = check.out.substr(0, check.out.find('\n'));
  }
  ProgramResult RunOnTwoRanks(const std::vector<std::string>& script) {
    return RunOnRanks("2", script);
  }
  ProgramResult RunOnRanks(const std::string& ranks, const std::vector<std::string>& script) {
    std::vector<std::string> command = {DS_BIN_DIR "/dsrun", "--num_gpus", ranks,
                                        "--device",          "cpu",        "--run_dir",
                                        Path("run"),         "--python",   python_};
    command.insert(command.end(), script.begin(), script.end());
    return RunProgram(command, {.environment = {"PYTHONPATH=" DS_BIN_DIR "/../python",
                                                "OMP_NUM_THREADS=1", "CUDA_VISIBLE_DEVICES="},
                                .working_directory = folder_.path().string(),
                                .time_limit = std::chrono::seconds(900)});
  }
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
  std::string python_;
};

TEST_F(PythonPackageTest, TrainsAsPyTorchDoes) {
  const ProgramResult result =
      RunOnTwoRanks({DS_SOURCE_DIR "/tests/python/check_engine.py", Path("checkpoints")});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("all checks passed"));
}

TEST_F(PythonPackageTest, BuildsModelsInShards) {
  const ProgramResult result =
      RunOnTwoRanks({DS_SOURCE_DIR "/tests/python/check_init.py", Path("models")});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("all checks passed"));
}

TEST_F(PythonPackageTest, StagesOfAPipelineTrainAsPyTorchDoes) {
  const ProgramResult result =
      RunOnTwoRanks({DS_SOURCE_DIR "/tests/python/check_pipeline.py", Path("checkpoints")});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("all checks passed"));
}

TEST_F(PythonPackageTest, CopiesOfStagesTrainAsPyTorchDoes) {
  const ProgramResult result =
      RunOnRanks("4", {DS_SOURCE_DIR "/tests/python/check_pipeline.py", Path("checkpoints")});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("all checks passed"));
}

// Removes the lines of progress that dsrun writes itself.
std::string WithoutProgress(const std::string& output) {
  std::istringstream lines(output);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("step ")) kept += line + "\n";
  }
  return kept;
}

// runtime/examples has the same model in C++ and in Python.
TEST_F(PythonPackageTest, TheExampleHasTheLossesOfItsTwin) {
  ASSERT_TRUE(WriteFileAtomically(Path("ds.json"), R"({"train_micro_batch_size_per_gpu": 8,
      "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 3},
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})")
                  .ok());
  const ProgramResult python =
      RunOnTwoRanks({DS_SOURCE_DIR "/runtime/examples/custom_model.py", Path("ds.json")});
  ASSERT_EQ(python.status, 0) << python.out << python.err;
  const ProgramResult native =
      RunProgram({DS_BIN_DIR "/dsrun", "--num_gpus", "2", "--device", "cpu", "--run_dir",
                  Path("native"), DS_BIN_DIR "/custom_model", Path("ds.json")},
                 {.time_limit = std::chrono::seconds(300)});
  ASSERT_EQ(native.status, 0) << native.out << native.err;
  EXPECT_THAT(python.out, HasSubstr("step 100  loss "));
  EXPECT_EQ(WithoutProgress(python.out), native.out);
}

// The verdict has the exception of Python, and the place that raised it.
TEST_F(PythonPackageTest, AnExceptionIsTheVerdict) {
  ASSERT_TRUE(WriteFileAtomically(Path("train.py"), R"(
import torch
import dsrun
engine, *_ = dsrun.initialize(model=torch.nn.Linear(4, 4), config={
    "train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})
engine.backward(engine(torch.ones(1, 4)).sum())
engine.step()
if dsrun.comm.get_rank() == 1:
    raise KeyError("no such sample")
engine.backward(engine(torch.ones(1, 4)).sum())
engine.step()
)")
                  .ok());
  const ProgramResult result = RunOnTwoRanks({Path("train.py")});
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("KeyError: 'no such sample'"));
  EXPECT_THAT(result.err, HasSubstr("train.py:9"));
  EXPECT_THAT(result.err, HasSubstr("last step  1"));
}

}  // namespace
}  // namespace ds::testing
