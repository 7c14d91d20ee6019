#include "cli/commands/checkpoint_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/commands/command_table.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "tests/support/program.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::CommitSample;
using checkpoint::FlipBit;
using ::testing::HasSubstr;

class CheckpointCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CommitSample(root_, 20);
    CommitSample(root_, 10);
  }
  int Verify(const fs::path& directory) {
    out_.str("");
    return VerifyCheckpoints(directory, out_);
  }
  int List(const fs::path& directory) {
    out_.str("");
    return ListCheckpoints(directory, out_);
  }

  const ds::testing::TemporaryFolder run_;
  const fs::path root_ = run_.path() / "checkpoints";
  std::ostringstream out_;
};

TEST_F(CheckpointCommandTest, GoodCheckpointsAreGood) {
  EXPECT_EQ(Verify(root_ / "step-20"), kExitOk);
  EXPECT_EQ(out_.str(), "step-20: good: 2 tensors, 11.8 KiB\n");
  EXPECT_EQ(Verify(run_.path()), kExitOk);
  EXPECT_EQ(out_.str(), "step-10: good: 2 tensors, 11.8 KiB\nstep-20: good: 2 tensors, 11.8 KiB\n");
}

TEST_F(CheckpointCommandTest, ADamagedOneNamesFileAndTensor) {
  FlipBit(root_ / "step-20/rank-00001.bin", 7);
  EXPECT_EQ(Verify(root_ / "step-20"), kExitCheckpoint);
  EXPECT_THAT(out_.str(), HasSubstr("step-20: damaged\n  rank-00001.bin: tensor 'weight': "));
  EXPECT_EQ(Verify(root_), kExitCheckpoint);
  EXPECT_THAT(out_.str(), HasSubstr("step-10: good"));
}

TEST_F(CheckpointCommandTest, ReportsThatNoneExists) {
  EXPECT_EQ(Verify(run_.path() / "nowhere"), kExitCheckpoint);
  EXPECT_THAT(out_.str(), HasSubstr("nowhere"));
  EXPECT_EQ(Verify(root_ / "step-99"), kExitCheckpoint);
  EXPECT_THAT(out_.str(), HasSubstr("step-99: no checkpoint"));
  fs::create_directory(run_.path() / "empty");
  EXPECT_EQ(List(run_.path() / "empty"), kExitCheckpoint);
  EXPECT_THAT(out_.str(), HasSubstr("there is no checkpoint in it"));
}

TEST_F(CheckpointCommandTest, ListsByStepAndMarksTheLatest) {
  EXPECT_EQ(List(run_.path()), kExitOk);
  EXPECT_EQ(out_.str(),
            "step-10          2 tensors  11.8 KiB  latest\n"
            "step-20          2 tensors  11.8 KiB\n");
}

TEST_F(CheckpointCommandTest, ListShowsABrokenManifest) {
  FlipBit(root_ / "step-20/manifest.json", 50);
  EXPECT_EQ(List(root_), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("step-20     damaged: "));
}

// A folder to which a script's engine saves has a folder for each tag, with one checkpoint.
TEST_F(CheckpointCommandTest, FindsTheCheckpointsOfTags) {
  const fs::path saved = run_.path() / "saved";
  CommitSample(saved / "global_step30", 30);
  CommitSample(saved / "step-4", 4);
  fs::create_directory(saved / "other");
  ASSERT_TRUE(WriteFileAtomically(saved / "latest", "step-4").ok());
  EXPECT_EQ(List(saved), kExitOk);
  EXPECT_EQ(out_.str(),
            "step-4/step-4               2 tensors  11.8 KiB  latest\n"
            "global_step30/step-30       2 tensors  11.8 KiB\n");
  EXPECT_EQ(List(saved / "step-4"), kExitOk);
  EXPECT_EQ(out_.str(), "step-4           2 tensors  11.8 KiB  latest\n");
  EXPECT_EQ(Verify(saved), kExitOk);
  FlipBit(saved / "step-4/step-4/rank-00001.bin", 7);
  EXPECT_EQ(Verify(saved), kExitCheckpoint);
  EXPECT_THAT(out_.str(), HasSubstr("step-4/step-4: damaged\n  rank-00001.bin: "));
  EXPECT_THAT(out_.str(), HasSubstr("global_step30/step-30: good"));
}

TEST_F(CheckpointCommandTest, UsageErrorsAreStatuses) {
  Invocation invocation;
  invocation.arguments = {"verfy", root_.string()};
  const Status status = CheckpointCommand(invocation).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("did you mean 'verify'?"));
  invocation.arguments = {"verify"};
  EXPECT_FALSE(CheckpointCommand(invocation).ok());
}

}  // namespace
}  // namespace ds::cli
