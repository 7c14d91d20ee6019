#include "cli/train/train_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/program.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::CommitSample;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TrainProgramTest, ARestartGoesOnFromWhereTheUserSentTheRun) {
  const ds::testing::TemporaryFolder run;
  const fs::path root = run.path() / "checkpoints";
  checkpoint::Lineage first;
  for (const int step : {10, 20, 90}) CommitSample(root, step, &first);
  const config::TrainJob job{
      .model = "tiny", .checkpoint_dir = root, .resume_from = root / "step-10"};
  const TrainProgram program(job, /*first_generation=*/3);
  ASSERT_TRUE(program.ForGeneration(3).ok());

  // Its ranks ended before they saved.
  EXPECT_THAT(program.ForGeneration(4)->notices, ElementsAre(HasSubstr("going on from")));
  EXPECT_THAT(program.ForGeneration(4)->notices, ElementsAre(HasSubstr("step-10")));

  // They saved step 20, which was damaged then.
  checkpoint::Lineage second = checkpoint::ResumeSample(root, 10, 4);
  CommitSample(root, 20, &second);
  EXPECT_THAT(program.ForGeneration(5)->notices, ElementsAre(HasSubstr("step-20")));
  checkpoint::FlipBit(root / "step-20/rank-00000.bin", 0);
  EXPECT_THAT(program.ForGeneration(6)->notices,
              ElementsAre(HasSubstr("step-20 is damaged"),
                          HasSubstr("from " + root.string() + "/step-10")));
}

TEST(TrainProgramTest, ACheckpointThatCannotBeReadIsNamed) {
  const ds::testing::TemporaryFolder run;
  const config::TrainJob job{
      .model = "tiny", .checkpoint_dir = run.path(), .resume_from = run.path() / "step-10"};
  const auto program = TrainProgram(job, 0).ForGeneration(0);
  ASSERT_FALSE(program.ok());
  EXPECT_THAT(program.status().message(), HasSubstr("cannot go on from"));
}

}  // namespace
}  // namespace ds::cli
