#include "runtime/checkpoint_format/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>

#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/latest.h"
#include "tests/support/program.h"
#include "tests/support/scripted_file_system.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;
using ds::testing::FileCall;
using ds::testing::kAskTheSystem;
using ds::testing::ScriptedFileSystem;
using ds::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CatalogTest : public ::testing::Test {
 protected:
  NewestCheckpoint Newest() { return FindNewestGood(folder_.path()).value(); }
  void WriteLatest(const std::string& text) { std::ofstream(folder_.path() / kLatestFile) << text; }
  TemporaryFolder folder_;
};

TEST_F(CatalogTest, ListsByStepAndIgnoresTheRest) {
  for (const int step : {100, 20, 3}) CommitSample(folder_.path(), step);
  fs::create_directory(folder_.path() / "step-200.tmp-0-00c0ffee00c0ffee");
  fs::create_directory(folder_.path() / "step-007");
  std::ofstream(folder_.path() / "step-9") << "a file";
  const auto listed = ListCheckpoints(folder_.path()).value();
  ASSERT_THAT(listed, SizeIs(3));
  EXPECT_EQ(listed[0].step, 3);
  EXPECT_TRUE(listed[0].latest);
  EXPECT_EQ(listed[1].step, 20);
  EXPECT_EQ(listed[2].step, 100);
  EXPECT_FALSE(listed[2].latest);
}

TEST_F(CatalogTest, TheOlderOneOfAnInterruptedReplacementRepresentsItsStep) {
  for (const int step : {10, 20}) CommitSample(folder_.path(), step);
  fs::rename(folder_.path() / "step-20", folder_.path() / "step-20.old");
  EXPECT_EQ(Newest().found->step, 10) << "the user gave it the name";
  std::ofstream(folder_.path() / "step-20.old" / kWriterFile) << "";
  EXPECT_EQ(Newest().found->directory, folder_.path() / "step-20.old");
  EXPECT_TRUE(Newest().found->latest);
  EXPECT_EQ(DirectoryOfStep(folder_.path(), 20), folder_.path() / "step-20.old");
  CommitSample(folder_.path(), 30);
  EXPECT_EQ(DirectoryOfStep(folder_.path(), 20), folder_.path() / "step-20");
}

TEST_F(CatalogTest, NewestIsTheOneNamedLatest) {
  for (const int step : {10, 20, 15}) CommitSample(folder_.path(), step);
  EXPECT_EQ(Newest().found->step, 15);
  EXPECT_THAT(Newest().skipped, IsEmpty());
}

TEST_F(CatalogTest, ADamagedLatestIsSkippedWithItsReason) {
  for (const int step : {10, 20, 30}) CommitSample(folder_.path(), step);
  FlipBit(folder_.path() / "step-30/rank-00000.bin", 0);
  fs::remove(folder_.path() / "step-20/rank-00001.bin");
  const NewestCheckpoint newest = Newest();
  EXPECT_EQ(newest.found->step, 10);
  ASSERT_THAT(newest.skipped, SizeIs(2));
  EXPECT_EQ(newest.skipped[0].directory, folder_.path() / "step-30");
  EXPECT_THAT(newest.skipped[0].reason, HasSubstr("tensor 'weight'"));
  EXPECT_THAT(newest.skipped[1].reason, HasSubstr("rank-00001.bin"));
}

TEST_F(CatalogTest, AMissingOrStrangeLatestFallsBackToTheHighestStep) {
  for (const int step : {20, 10}) CommitSample(folder_.path(), step);
  for (const char* text : {"", "step-99", "../step-10", "step-10/../..", "nonsense\n"}) {
    WriteLatest(text);
    EXPECT_EQ(Newest().found->step, 20) << text;
  }
  fs::remove(folder_.path() / kLatestFile);
  EXPECT_EQ(Newest().found->step, 20);
}

// A run of ten to thirty steps that is sent back to step 10 and saves step 20 again.
class SentBackTest : public CatalogTest {
 protected:
  void SetUp() override {
    Lineage first;
    for (const int step : {10, 20, 30}) CommitSample(folder_.path(), step, &first);
    lineage_ = ResumeSample(folder_.path(), 10, /*generation=*/1);
  }
  Lineage lineage_;
};

TEST_F(SentBackTest, ResumesFromTheRewindUntilItSaves) {
  EXPECT_EQ(Newest().found->step, 10);
  CommitSample(folder_.path(), 15, &lineage_);
  EXPECT_EQ(Newest().found->step, 15);
}

TEST_F(SentBackTest, NeverTakesAbandonedCheckpoints) {
  CommitSample(folder_.path(), 20, &lineage_);
  EXPECT_EQ(Newest().found->step, 20);
  FlipBit(folder_.path() / "step-20/rank-00000.bin", 0);
  EXPECT_EQ(Newest().found->step, 10);
  EXPECT_THAT(Newest().skipped, SizeIs(1));
  FlipBit(folder_.path() / "step-20" / kManifestFile, 60);
  EXPECT_EQ(Newest().found->step, 10) << "latest knows the line of a head that tells nothing";
  fs::remove_all(folder_.path() / "step-20");
  EXPECT_EQ(Newest().found->step, 10);
  fs::remove_all(folder_.path() / "step-10");
  EXPECT_FALSE(Newest().found.has_value()) << "step-30 is another future";
}

TEST_F(SentBackTest, WithoutLatestTheNewestGenerationCounts) {
  CommitSample(folder_.path(), 20, &lineage_);
  fs::remove(folder_.path() / kLatestFile);
  EXPECT_EQ(Newest().found->step, 20);
}

TEST_F(SentBackTest, ALineSurvivesTheRemovalOfOldCheckpoints) {
  for (const int step : {20, 40}) CommitSample(folder_.path(), step, &lineage_);
  Lineage second = ResumeSample(folder_.path(), 40, /*generation=*/2);
  CommitSample(folder_.path(), 50, &second);
  fs::remove_all(folder_.path() / "step-40");
  FlipBit(folder_.path() / "step-50/rank-00000.bin", 0);
  EXPECT_EQ(Newest().found->step, 20);
}

TEST_F(CatalogTest, ACheckpointThatLatestMissedIsTheHead) {
  Lineage lineage;
  CommitSample(folder_.path(), 10, &lineage);
  const std::string latest = Slurp(folder_.path() / kLatestFile);
  for (const int step : {20, 30}) CommitSample(folder_.path(), step, &lineage);
  WriteLatest(latest);
  EXPECT_EQ(Newest().found->step, 30);
  ResumeSample(folder_.path(), 10, /*generation=*/1);
  EXPECT_EQ(Newest().found->step, 10) << "the job was sent back on purpose";
}

TEST_F(CatalogTest, ARewindWithinAGenerationAbandonsLaterCheckpoints) {
  Lineage lineage;
  CommitSample(folder_.path(), 10, &lineage);
  const Lineage at_ten = lineage;
  CommitSample(folder_.path(), 20, &lineage);
  lineage = at_ten;
  CommitSample(folder_.path(), 15, &lineage);
  EXPECT_EQ(Newest().found->step, 15);
}

// Folders of two jobs that trained alike: the same steps and generations, by other starts.
class CopiedTest : public CatalogTest {
 protected:
  void SetUp() override {
    for (const int step : {10, 20, 30, 40}) CommitSample(other_.path(), step, &other_lineage_);
    for (const int step : {10, 20, 30}) CommitSample(folder_.path(), step, &lineage_);
  }
  // Puts the other job's checkpoint into the folder, in the place of one of the same step.
  void Copy(int step) {
    const std::string name = StepDirectoryName(step);
    fs::remove_all(folder_.path() / name);
    fs::copy(other_.path() / name, folder_.path() / name);
  }
  ds::testing::TemporaryFolder other_;
  Lineage lineage_{.generation = 1, .start = 61}, other_lineage_{.generation = 1, .start = 67};
};

TEST_F(CopiedTest, DoesNotResumeACheckpointOfAnotherJob) {
  Copy(40);
  EXPECT_EQ(Newest().found->step, 30) << "no child of this job's head";
  Copy(20);
  FlipBit(folder_.path() / "step-30/rank-00000.bin", 0);
  EXPECT_EQ(Newest().found->step, 10) << "nor a part of its past";
  Copy(30);
  EXPECT_EQ(Newest().found->step, 10) << "nor its head";
  ASSERT_THAT(Newest().skipped, SizeIs(1));
  EXPECT_THAT(Newest().skipped[0].reason, HasSubstr("is another job's"));
}

TEST_F(CopiedTest, AResumeFromItMakesItTheHead) {
  Copy(40);
  lineage_ = ResumeSample(folder_.path(), 40, /*generation=*/2, /*start=*/71);
  EXPECT_EQ(Newest().found->step, 40);
  CommitSample(folder_.path(), 50, &lineage_);
  FlipBit(folder_.path() / "step-50/rank-00000.bin", 0);
  FlipBit(folder_.path() / "step-40/rank-00000.bin", 0);
  EXPECT_FALSE(Newest().found.has_value()) << "steps 10 to 30 are of the first job";
}

// A job's folder is copied as a whole, and the copy goes on by a start of its own.
TEST_F(CopiedTest, CheckpointsOfACopiedFolderBelongToAnotherJob) {
  const TemporaryFolder copy;
  fs::copy(folder_.path(), copy.path(), fs::copy_options::recursive);
  Lineage of_copy = ResumeSample(copy.path(), 30, /*generation=*/2, /*start=*/71);
  CommitSample(copy.path(), 40, &of_copy);
  fs::copy(copy.path() / "step-40", folder_.path() / "step-40");
  EXPECT_EQ(Newest().found->step, 30);
  lineage_ = ResumeSample(folder_.path(), 30, /*generation=*/2, /*start=*/73);
  EXPECT_EQ(Newest().found->step, 30);
  CommitSample(folder_.path(), 40, &lineage_);
  std::vector<std::string> set_aside;
  for (const std::string& name : NamesIn(folder_.path())) {
    if (name.starts_with("step-40.other-")) set_aside.push_back(name);
  }
  EXPECT_THAT(set_aside, SizeIs(1));
}

TEST_F(CopiedTest, WithoutLatestTwoJobsAreNotGuessedAt) {
  Copy(40);
  fs::remove(folder_.path() / kLatestFile);
  const auto newest = FindNewestGood(folder_.path());
  EXPECT_EQ(newest.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(newest.status().message(), HasSubstr("two jobs, such as step-10 and step-40"));
  fs::remove_all(folder_.path() / "step-40");
  EXPECT_EQ(Newest().found->step, 30);
}

// `latest` tells of the step's former checkpoint: a crash came before it was written again.
TEST_F(CopiedTest, AStepThatIsSavedAgainStaysTheHead) {
  const std::string latest = Slurp(folder_.path() / kLatestFile);
  Lineage again = ContinueLineage({.generation = 1, .start = 61}, 20, {2, {}, /*start=*/71});
  CommitSample(folder_.path(), 30, &again);
  WriteLatest(latest);
  EXPECT_EQ(Newest().found->step, 30);
  EXPECT_THAT(Newest().skipped, SizeIs(0));
}

TEST_F(CatalogTest, CheckpointsWithoutLineageAreOneLineOfSteps) {
  for (const int step : {10, 20}) CommitSample(folder_.path(), step);
  Lineage lineage = ResumeSample(folder_.path(), 20, /*generation=*/5);
  EXPECT_EQ(lineage, (Lineage{5, {{0, 20}}}));
  CommitSample(folder_.path(), 30, &lineage);
  FlipBit(folder_.path() / "step-30/rank-00000.bin", 0);
  FlipBit(folder_.path() / "step-20/rank-00000.bin", 0);
  EXPECT_EQ(Newest().found->step, 10);
}

TEST_F(CatalogTest, NothingGoodIsAnEmptyResult) {
  EXPECT_FALSE(Newest().found.has_value());
  fs::create_directory(folder_.path() / "step-5");
  EXPECT_FALSE(Newest().found.has_value());
  EXPECT_THAT(Newest().skipped, SizeIs(1));
}

// A file server that is gone for a moment must not cost a run its newest checkpoints.
TEST_F(CatalogTest, AnOlderOneIsNotTakenForOneThatCannotBeReadNow) {
  Lineage lineage;
  for (const int step : {10, 20, 30}) CommitSample(folder_.path(), step, &lineage);
  for (const int error : {EAGAIN, EIO, ESTALE, ETIMEDOUT, EACCES, EMFILE, ENOMEM}) {
    for (const char* file : {"step-30/rank-00000.bin", "step-30/manifest.json", kLatestFile}) {
      ScriptedFileSystem system([&](const FileCall& call) {
        return call.path == folder_.path() / file ? error : kAskTheSystem;
      });
      const auto newest = FindNewestGood(folder_.path(), system);
      EXPECT_EQ(newest.status().code(), StatusCode::kUnavailable) << file << " " << error;
      EXPECT_THAT(newest.status().message(), HasSubstr((folder_.path() / file).filename()));
    }
    // An older one is not looked at.
    ScriptedFileSystem system([&](const FileCall& call) {
      return call.path.find("step-20") != std::string::npos ? error : kAskTheSystem;
    });
    EXPECT_EQ(FindNewestGood(folder_.path(), system)->found->step, 30) << error;
  }
}

TEST_F(CatalogTest, WithoutLatestEveryManifestCounts) {
  Lineage lineage;
  for (const int step : {10, 20}) CommitSample(folder_.path(), step, &lineage);
  fs::remove(folder_.path() / kLatestFile);
  ScriptedFileSystem system([&](const FileCall& call) {
    return call.path == folder_.path() / "step-10/manifest.json" ? EIO : kAskTheSystem;
  });
  EXPECT_EQ(FindNewestGood(folder_.path(), system).status().code(), StatusCode::kUnavailable);
}

TEST_F(CatalogTest, ALatestThatCannotBeReadIsNotMissing) {
  CommitSample(folder_.path(), 10);
  const fs::path latest = folder_.path() / kLatestFile;
  fs::remove(latest);
  fs::create_directory(latest);  // proven: it is no file, and names nothing
  EXPECT_FALSE(ReadLatest(folder_.path()).value().has_value());
  ScriptedFileSystem system(
      [&](const FileCall& call) { return call.path == latest ? ESTALE : kAskTheSystem; });
  EXPECT_EQ(ReadLatest(folder_.path(), system).status().code(), StatusCode::kUnavailable);
}

TEST_F(CatalogTest, AMissingRootIsNotFound) {
  EXPECT_EQ(FindNewestGood(folder_.path() / "none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace ds::checkpoint
