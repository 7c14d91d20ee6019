#include "cli/train/train_program.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <utility>
#include <vector>

#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint_format/folder_mark.h"
#include "tests/support/program.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::CommitSample;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TrainProgramTest, ARestartResumesFromTheCheckpointOfTheRewind) {
  const ds::testing::TemporaryFolder run;
  const fs::path root = run.path() / "checkpoints";
  checkpoint::Lineage first;
  for (const int step : {10, 20, 90}) CommitSample(root, step, &first);
  const config::TrainJob job{
      .model = "tiny", .checkpoint_dir = root, .resume_from = root / "step-10"};
  const TrainProgram program(job, /*first_generation=*/3);
  ASSERT_TRUE(program.ForGeneration(3).ok());

  // Its ranks ended before they saved.
  EXPECT_THAT(program.ForGeneration(4)->notices, ElementsAre(HasSubstr("resuming from")));
  EXPECT_THAT(program.ForGeneration(4)->notices, ElementsAre(HasSubstr("step-10")));

  // They saved step 20, which was damaged then.
  checkpoint::Lineage second = checkpoint::ResumeSample(root, 10, 4);
  CommitSample(root, 20, &second);
  EXPECT_THAT(program.ForGeneration(5)->notices, ElementsAre(HasSubstr("step-20")));
  checkpoint::FlipBit(root / "step-20/rank-00000.bin", 0);
  EXPECT_THAT(program.ForGeneration(6)->notices,
              ElementsAre(HasSubstr("step-20 is skipped: it is damaged"),
                          HasSubstr("from " + root.string() + "/step-10")));
}

// A job that ends when its time is over does so however often it has been restarted.
TEST(TrainProgramTest, ARestartHasTheRemainingTimeOfTheJob) {
  const ds::testing::TemporaryFolder run;
  ManualClock clock;
  const config::TrainJob job{
      .model = "tiny", .data = {"d"}, .max_minutes = 10.0, .checkpoint_dir = run.path()};
  const TrainProgram program(job, /*first_generation=*/3, std::nullopt, clock);
  const auto minutes = [&](int generation) {
    return config::TrainJobFromJson(program.ForGeneration(generation)->files[0].second)
        ->max_minutes;
  };
  EXPECT_EQ(minutes(3), 10.0);
  clock.Advance(std::chrono::minutes(4));
  EXPECT_EQ(minutes(3), 10.0) << "starting is no training";
  EXPECT_DOUBLE_EQ(minutes(4), 6.0);
  clock.Advance(std::chrono::minutes(60));
  EXPECT_GT(minutes(5), 0.0) << "0 would be no limit";
  EXPECT_LT(minutes(5), 1e-3);
  const TrainProgram endless({.model = "tiny", .data = {"d"}}, 0, std::nullopt, clock);
  EXPECT_EQ(config::TrainJobFromJson(endless.ForGeneration(1)->files[0].second)->max_minutes, 0.0);
}

// By a link to a large drive, or in a copy of its folder.
TEST(TrainProgramTest, ANewRunSavesOverNoOthersCheckpoints) {
  const ds::testing::TemporaryFolder run;
  const fs::path root = run.path() / "checkpoints";
  EXPECT_TRUE(CheckHoldsNoCheckpoints(root).ok());
  fs::create_directory(root);
  EXPECT_TRUE(CheckHoldsNoCheckpoints(root).ok());
  CommitSample(root, 10);
  const Status status = CheckHoldsNoCheckpoints(root);
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(status.message(), HasSubstr("has checkpoints of another run, such as step-10"));
  fs::create_directory_symlink(root, run.path() / "link");
  EXPECT_FALSE(CheckHoldsNoCheckpoints(run.path() / "link").ok());
}

TEST(TrainProgramTest, ACheckpointThatCannotBeReadIsNamed) {
  const ds::testing::TemporaryFolder run;
  const config::TrainJob job{
      .model = "tiny", .checkpoint_dir = run.path(), .resume_from = run.path() / "step-10"};
  const auto program = TrainProgram(job, 0).ForGeneration(0);
  ASSERT_FALSE(program.ok());
  EXPECT_THAT(program.status().message(), HasSubstr("cannot resume from"));
}

// /sys lets nobody make a folder. It was an unreadable checkpoint that is waited for.
TEST(TrainProgramTest, AFolderThatCannotBeMadeIsNoTroubleThatPasses) {
  const TrainProgram program(
      {.model = "tiny", .data = {"d"}, .save_every = 5, .checkpoint_dir = "/sys/dsrun/checkpoints"},
      /*first_generation=*/3);
  for (int generation = 3; generation < 5; ++generation) {
    const Status status = program.ForGeneration(generation).status();
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << status.message();
    EXPECT_THAT(status.message(), HasSubstr("no checkpoint can be written: /sys/dsrun"));
  }
}

// A limit of file sizes answers as a full disk does. A restart called it a checkpoint that cannot
// be read, and waited.
TEST(TrainProgramTest, AFullDiskIsNoTroubleThatPasses) {
  const ds::testing::TemporaryFolder run;
  const fs::path root = run.path() / "checkpoints";
  CommitSample(root, 10);
  const config::TrainJob goes_on{
      .model = "tiny", .checkpoint_dir = root, .resume_from = root / "step-10"};
  const config::TrainJob begins{
      .model = "tiny", .data = {"d"}, .save_every = 5, .checkpoint_dir = run.path() / "new"};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  std::vector<Status> failed;
  for (const config::TrainJob& job : {goes_on, begins}) {
    const TrainProgram program(job, /*first_generation=*/3);
    for (const int generation : {3, 4}) {
      failed.push_back(program.ForGeneration(generation).status());
    }
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  for (const Status& status : failed) {
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  }
}

// A resume ended as an internal error.
TEST(TrainProgramTest, AFolderInThePlaceOfLatestIsNamed) {
  const ds::testing::TemporaryFolder run;
  const fs::path root = run.path() / "checkpoints";
  CommitSample(root, 10);
  fs::remove(root / "latest");
  fs::create_directory(root / "latest");
  const config::TrainJob job{
      .model = "tiny", .checkpoint_dir = root, .resume_from = root / "step-10"};
  const TrainProgram program(job, /*first_generation=*/3);
  for (int generation = 3; generation < 5; ++generation) {
    const Status status = program.ForGeneration(generation).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(root.string() + "/latest: a folder is where"));
    EXPECT_THAT(status.message(), HasSubstr("move the folder away"));
  }
}

// Ranks that do not find it save where no restart would look.
TEST(TrainProgramTest, TheFolderOfCheckpointsIsMarkedForTheRanks) {
  const ds::testing::TemporaryFolder run;
  const fs::path root = run.path() / "checkpoints";
  const auto count_files = [&] { return std::distance(fs::directory_iterator(root), {}); };
  {
    const TrainProgram program(
        {.model = "tiny", .data = {"a.txt"}, .save_every = 5, .checkpoint_dir = root}, 0);
    std::string mark;
    for (int generation = 0; generation < 2; ++generation) {
      const auto made = program.ForGeneration(generation);
      ASSERT_TRUE(made.ok()) << made.status().message();
      const auto job = config::TrainJobFromJson(made->files[0].second);
      EXPECT_NE(job->checkpoint_mark, mark);
      mark = job->checkpoint_mark;
      EXPECT_TRUE(checkpoint::FindFolderMark(root, mark).ok());
      EXPECT_EQ(count_files(), 1) << "the mark of the generation before is gone";
    }
    EXPECT_FALSE(checkpoint::FindFolderMark(run.path(), mark).ok());
  }
  EXPECT_EQ(count_files(), 0) << "no mark stays where no rank has come to it";
}

TEST(TrainProgramTest, ARestartWithoutACheckpointStartsAsAtFirst) {
  const ds::testing::TemporaryFolder run;
  const config::TrainJob job{
      .model = "tiny", .data = {"d"}, .checkpoint_dir = run.path() / "checkpoints"};
  const TrainProgram program(job, /*first_generation=*/3);
  EXPECT_TRUE(program.ForGeneration(3)->notices.empty());
  const auto restarted = program.ForGeneration(4);
  ASSERT_TRUE(restarted.ok());
  EXPECT_THAT(restarted->notices, ElementsAre("no checkpoint yet: starting again as at first"));
  EXPECT_THAT(restarted->argv, ElementsAre("", "train", "@DSRUN_JOB_DIR@/train.json"));
  auto read = config::TrainJobFromJson(restarted->files.at(0).second).value();
  EXPECT_GT(std::exchange(read.start, 0), 0) << "these ranks have an id of their own";
  EXPECT_EQ(config::ToJson(read), config::ToJson(job));
}

// Whoever restarts it must know that a beginning at step 0 throws something away.
TEST(TrainProgramTest, ARestartReportsAnUnusableCheckpoint) {
  const ds::testing::TemporaryFolder run;
  const fs::path root = run.path() / "checkpoints";
  const TrainProgram program({.model = "tiny", .data = {"d"}, .checkpoint_dir = root}, 0);
  EXPECT_TRUE(program.ForGeneration(1)->begins_again);
  EXPECT_EQ(program.ForGeneration(1)->unusable, "");
  CommitSample(root, 10);
  EXPECT_FALSE(program.ForGeneration(1)->begins_again);
  checkpoint::FlipBit(root / "step-10/rank-00000.bin", 0);
  EXPECT_TRUE(program.ForGeneration(2)->begins_again);
  EXPECT_THAT(program.ForGeneration(2)->unusable, HasSubstr("step-10 is skipped: it is damaged"));
  fs::remove_all(root / "step-10");
  EXPECT_TRUE(program.ForGeneration(3)->begins_again);
  EXPECT_THAT(program.ForGeneration(3)->unusable, HasSubstr("latest names step-10, which is gone"));
}

TEST(TrainProgramTest, AHiccupOfTheStorageIsNoDamage) {
  const ds::testing::TemporaryFolder run;
  const TrainProgram program({.model = "tiny", .data = {"d"}, .checkpoint_dir = run.path()}, 0);
  for (const int step : {10, 20}) CommitSample(run.path(), step);
  std::signal(SIGIO, SIG_IGN);  // the kernel asks for the lease back
  const fs::path file = run.path() / "step-20/rank-00000.bin";
  const UniqueFd lease(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  if (::fcntl(lease.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "no leases here";
  EXPECT_EQ(program.ForGeneration(1).status().code(), StatusCode::kUnavailable);
  ASSERT_EQ(::fcntl(lease.get(), F_SETLEASE, F_UNLCK), 0);
  EXPECT_THAT(program.ForGeneration(1)->notices, ElementsAre(HasSubstr("step-20")));
}

}  // namespace
}  // namespace ds::cli
