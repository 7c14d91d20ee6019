#include "runtime/checkpoint_format/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/commit.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/latest.h"
#include "tests/places.h"
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Steps = std::vector<std::int64_t>;

TEST(Retention, KeepsTheSameAsTrainer) {
  const auto golden =
      nlohmann::json::parse(Slurp(DS_SOURCE_DIR "/tests/unit/checkpoint/goldens/retention.json"));
  for (const auto& each : golden["cases"]) {
    Steps steps = each["steps"];
    RetentionPolicy policy{.limit = each["limit"]};
    if (!each["best"].is_null()) policy.best = each["best"].get<std::int64_t>();
    for (const std::int64_t step : ChooseStepsToRemove(steps, policy)) std::erase(steps, step);
    EXPECT_EQ(steps, each["kept"].get<Steps>()) << each.dump();
  }
}

class PruneTest : public ::testing::Test {
 protected:
  void Commit(const Steps& steps) {
    for (const std::int64_t step : steps) CommitSample(folder_.path(), step, &lineage_);
  }
  void Prune(std::int64_t limit, std::optional<std::int64_t> best = {}) {
    PruneCheckpoints(folder_.path(), {.limit = limit, .best = best}, lineage_);
  }
  Steps Listed() {
    Steps steps;
    const auto listed = ListCheckpoints(folder_.path()).value();
    for (const ListedCheckpoint& each : listed) steps.push_back(each.step);
    return steps;
  }
  TemporaryFolder folder_;
  Lineage lineage_;
};

TEST_F(PruneTest, LeavesTheNewestAndTheBestAndNoOtherFolder) {
  Commit({10, 20, 30, 40});
  Prune(0);
  EXPECT_THAT(Listed(), ElementsAre(10, 20, 30, 40));
  Prune(3, 10);
  EXPECT_THAT(Listed(), ElementsAre(10, 30, 40));
  Prune(1, 10);
  EXPECT_THAT(Listed(), ElementsAre(10, 40));
  Prune(1);
  EXPECT_THAT(Listed(), ElementsAre(40));
  EXPECT_THAT(NamesIn(folder_.path()),
              ::testing::UnorderedElementsAre("step-40", kLatestFile, kFolderLockFile));
  ExpectGoodCheckpoints(folder_.path(), 40);
}

TEST_F(PruneTest, AResumedRunCountsTheOldOnes) {
  Commit({10, 20, 30});
  lineage_ = ResumeSample(folder_.path(), 30, 1);
  Commit({40});
  Prune(2);
  EXPECT_THAT(Listed(), ElementsAre(30, 40));
}

TEST_F(PruneTest, AnotherJobsCheckpointNeitherCountsNorGoes) {
  TemporaryFolder other;
  Lineage other_lineage{.generation = 0, .start = 67};
  CommitSample(other.path(), 15, &other_lineage);
  lineage_ = {.generation = 0, .start = 61};
  Commit({10, 20, 30});
  fs::copy(other.path() / "step-15", folder_.path() / "step-15");
  Prune(2);
  EXPECT_THAT(Listed(), ElementsAre(15, 20, 30));
}

TEST_F(PruneTest, TheUsersFilesAreNotRemoved) {
  Commit({10, 20, 30, 40});
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "step-20/notes.txt", "mine").ok());
  fs::create_directory(folder_.path() / "step-10/eval");
  Prune(1);
  EXPECT_THAT(Listed(), ElementsAre(10, 20, 40));
  EXPECT_THAT(RemoveCheckpoint(folder_.path(), 20, lineage_).message(),
              HasSubstr("step-20 stays: it holds notes.txt, which dsrun did not write"));
  ExpectGoodCheckpoints(folder_.path(), 40);
  EXPECT_EQ(Slurp(folder_.path() / "step-20/notes.txt"), "mine");
}

// What a name alone does not tell: a folder of other origin, a damaged checkpoint, one of another
// future, one that was put in another's place.
TEST_F(PruneTest, RemovesOnlyFilesThatTheManifestLists) {
  Commit({10, 20, 30, 40, 50});
  fs::create_directory(folder_.path() / "step-5");
  FlipBit(folder_.path() / "step-20" / kManifestFile, 3);
  fs::remove_all(folder_.path() / "step-30");
  fs::copy(folder_.path() / "step-10", folder_.path() / "step-30");
  lineage_ = ResumeSample(folder_.path(), 40, 1);
  Commit({45, 60});
  Prune(1);
  EXPECT_THAT(Listed(), ElementsAre(5, 20, 30, 50, 60));
  EXPECT_THAT(RemoveCheckpoint(folder_.path(), 5, lineage_).message(),
              HasSubstr("step-5 stays: its manifest does not show that this run wrote it"));
  EXPECT_TRUE(fs::exists(folder_.path() / "step-5"));
}

// The user moved a checkpoint to another disk and left a link in its place.
TEST_F(PruneTest, KeepsTargetsOfLinks) {
  const TemporaryFolder elsewhere;
  Commit({10, 20, 30, 40});
  fs::rename(folder_.path() / "step-10", elsewhere.path() / "step-10");
  fs::create_directory_symlink(elsewhere.path() / "step-10", folder_.path() / "step-10");
  fs::rename(folder_.path() / "step-20", elsewhere.path() / "kept");
  fs::create_directory_symlink(elsewhere.path() / "kept", folder_.path() / "step-20");
  Prune(1);
  EXPECT_THAT(Listed(), ElementsAre(10, 20, 40));
  ExpectGoodCheckpoints(folder_.path(), 40);
  EXPECT_THAT(RemoveCheckpoint(folder_.path(), 10, lineage_).message(),
              HasSubstr("step-10 stays: it is a link"));
  EXPECT_TRUE(fs::exists(elsewhere.path() / "step-10" / kManifestFile));
  EXPECT_TRUE(fs::exists(elsewhere.path() / "kept" / kManifestFile));
}

TEST_F(PruneTest, NothingGoesWhileLatestNamesNoNewerOne) {
  Commit({10, 20, 30});
  const Lineage newest = lineage_;
  ASSERT_TRUE(
      WriteLatest(folder_.path(), {.step = 20, .lineage = Lineage{}}, FileSystem::System()).ok());
  Prune(1);
  EXPECT_THAT(Listed(), ElementsAre(10, 20, 30));
  EXPECT_THAT(RemoveCheckpoint(folder_.path(), 10, newest).message(),
              HasSubstr("'latest' names no newer checkpoint"));
  Commit({40});
  EXPECT_FALSE(RemoveCheckpoint(folder_.path(), 40, lineage_).ok()) << "the newest itself";
  EXPECT_THAT(Listed(), ElementsAre(10, 20, 30, 40));
}

TEST_F(PruneTest, RanksOfAGenerationThatWasFollowedRemoveNothing) {
  Commit({10, 20, 30});
  ResumeSample(folder_.path(), 30, 1);
  Prune(1);
  EXPECT_THAT(Listed(), ElementsAre(10, 20, 30));
}

// A crash after the rename, before the files are gone.
TEST_F(PruneTest, TheNextSaveRemovesLeftoversOfACrash) {
  Commit({10, 20, 30});
  ScriptedFileSystem system([](const FileCall& call) {
    return call.kind == FileCall::Kind::kUnlink ? EIO : kAskTheSystem;
  });
  PruneCheckpoints(folder_.path(), {.limit = 1}, lineage_, system);
  EXPECT_THAT(Listed(), ElementsAre(20, 30));
  EXPECT_EQ(NamesIn(folder_.path()).size(), 5u);
  ExpectGoodCheckpoints(folder_.path(), 30);
  Commit({40});
  EXPECT_EQ(NamesIn(folder_.path()).size(), 5u) << "20, 30, 40, latest and the lock";
  Prune(1);
  EXPECT_THAT(Listed(), ElementsAre(40));
}

// Commits the sample as a save of `program`.
void CommitOf(const fs::path& root, std::int64_t step, const std::string& program) {
  const UnfinishedCheckpoint unfinished = BeginCheckpoint(root, step).value();
  const fs::path directory = UnfinishedDirectory(root, unfinished.name);
  Manifest manifest = WriteSampleFiles(directory, step).value();
  manifest.written_by["program"] = program;
  ASSERT_TRUE(WriteFileAtomically(directory / kClientStateFile, program).ok());
  ASSERT_TRUE(CommitCheckpoint(unfinished, manifest).ok());
}

TEST(ReplacedCheckpoints, GoOnlyIfTheProgramHasWrittenThem) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30, 40}) CommitOf(folder.path(), step, "one");
  CommitOf(folder.path(), 50, "another");
  CommitSample(folder.path(), 60);
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "step-30/notes.txt", "mine").ok());
  CommitOf(folder.path(), 15, "one");
  RemoveReplacedCheckpoints(folder.path(), 40, "one");  // `latest` does not name it
  EXPECT_EQ(NamesIn(folder.path()).size(), 9u);
  RemoveReplacedCheckpoints(folder.path(), 15, "one");
  EXPECT_THAT(NamesIn(folder.path()),
              ::testing::UnorderedElementsAre("step-15", "step-30", "step-50", "step-60",
                                              kLatestFile, kFolderLockFile));
  EXPECT_EQ(Slurp(folder.path() / "step-15" / kClientStateFile), "one");
  ExpectGoodCheckpoints(folder.path(), 15);
}

// A crash after the rename, before the files are gone.
TEST(ReplacedCheckpoints, AreGoneAfterTheNextSaveAtTheLatest) {
  const TemporaryFolder folder;
  CommitOf(folder.path(), 10, "one");
  CommitOf(folder.path(), 20, "one");
  ScriptedFileSystem system([](const FileCall& call) {
    return call.kind == FileCall::Kind::kUnlink ? EIO : kAskTheSystem;
  });
  RemoveReplacedCheckpoints(folder.path(), 20, "one", system);
  EXPECT_EQ(NamesIn(folder.path()).size(), 4u);
  CommitOf(folder.path(), 20, "one");
  EXPECT_THAT(NamesIn(folder.path()),
              ::testing::UnorderedElementsAre("step-20", kLatestFile, kFolderLockFile));
}

}  // namespace
}  // namespace ds::checkpoint
