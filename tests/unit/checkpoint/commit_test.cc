#include "runtime/checkpoint_format/commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <set>

#include "runtime/base/files.h"
#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/shard_file_writer.h"
#include "runtime/checkpoint_format/verify.h"
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
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CommitTest : public ::testing::Test {
 protected:
  // A save that has come as far as the commit.
  struct Begun {
    UnfinishedCheckpoint unfinished;
    fs::path directory;
    Manifest manifest;
  };
  Begun Begin(std::int64_t step, const std::optional<Lineage>& lineage = std::nullopt) {
    UnfinishedCheckpoint unfinished = BeginCheckpoint(folder_.path(), step, lineage).value();
    const fs::path directory = UnfinishedDirectory(folder_.path(), unfinished.name);
    Manifest manifest = WriteSampleFiles(directory, step).value();
    manifest.lineage = lineage;
    return {std::move(unfinished), directory, std::move(manifest)};
  }
  Status Commit(const Begun& begun) {
    return CommitCheckpoint(begun.unfinished, begun.manifest).status();
  }
  bool Exists(const char* name) { return fs::exists(folder_.path() / name); }
  // The steps of unfinished checkpoints.
  std::vector<std::int64_t> Unfinished() {
    std::vector<std::int64_t> steps;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      const auto name = ParseUnfinishedName(entry.path().filename().string());
      if (name) steps.push_back(name->step);
    }
    return steps;
  }
  TemporaryFolder folder_;
};

TEST_F(CommitTest, GivesTheFinalNameAndNamesItLatest) {
  const Begun begun = Begin(20);
  EXPECT_FALSE(Exists("step-20"));
  EXPECT_EQ(CommitCheckpoint(begun.unfinished, begun.manifest).value(), folder_.path() / "step-20");
  EXPECT_THAT(Unfinished(), IsEmpty());
  EXPECT_FALSE(Exists("step-20/writer"));
  EXPECT_EQ(Slurp(folder_.path() / kLatestFile), "step-20\n");
  EXPECT_TRUE(VerifyCheckpoint(folder_.path() / "step-20").value().ok());
}

TEST_F(CommitTest, ShardsAreAligned) {
  const Manifest manifest = Begin(1).manifest;
  for (const StoredTensor& tensor : manifest.tensors) {
    for (const StoredShard& shard : tensor.shards) EXPECT_EQ(shard.offset % kShardAlignment, 0U);
  }
}

TEST_F(CommitTest, ReplacesAnOlderOneOfTheSameStep) {
  const fs::path directory = CommitSample(folder_.path(), 20);
  FlipBit(directory / "rank-00000.bin", 5);
  fs::create_directories(directory / "left/over");
  CommitSample(folder_.path(), 20);
  EXPECT_TRUE(VerifyCheckpoint(directory).value().ok());
  EXPECT_FALSE(fs::exists(directory / "left"));
  EXPECT_THAT(Unfinished(), IsEmpty());
}

TEST_F(CommitTest, BeginRemovesLeftoversOfCrashes) {
  CommitSample(folder_.path(), 10);
  Begin(20);
  Begin(30);
  EXPECT_THAT(Unfinished(), ElementsAre(30));
  EXPECT_TRUE(Exists("step-10"));
}

// Whoever keeps notes or copies beside the checkpoints calls them as he likes.
TEST_F(CommitTest, NothingIsRemovedByItsName) {
  const fs::path root = folder_.path();
  CommitSample(root, 10);
  fs::copy(root / "step-10", root / "step-10.old", fs::copy_options::recursive);
  fs::copy(root / "step-10", root / "step-8.old", fs::copy_options::recursive);
  std::ofstream(root / "step-20") << "notes";
  fs::create_directory(root / "step-5.tmp-0-00c0ffee00c0ffee");
  fs::create_directory(root / "step-6.tmp-0-00c0ffee00c0ffee");
  for (const char* file : {"latest-good.txt", "latest.bak", "latest.00c0ffee00c0ffee",
                           "step-5.tmp-0-00c0ffee00c0ffee/notes"}) {
    std::ofstream(root / file) << "a week";
  }
  std::ofstream(root / "latest.0123456789abcdef") << "step-";  // a crash of ours
  CommitSample(root, 20);
  EXPECT_TRUE(Exists("step-10.old/manifest.json"));
  EXPECT_TRUE(Exists("step-8.old/manifest.json"));
  const std::vector<std::string> names = NamesIn(root);
  const auto notes = std::find_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("step-20.other-");
  });
  ASSERT_NE(notes, names.end());
  EXPECT_EQ(Slurp(root / *notes), "notes");
  EXPECT_TRUE(Exists("latest-good.txt"));
  EXPECT_TRUE(Exists("latest.bak"));
  EXPECT_TRUE(Exists("latest.00c0ffee00c0ffee"));
  EXPECT_TRUE(Exists("step-5.tmp-0-00c0ffee00c0ffee/notes"));
  EXPECT_FALSE(Exists("step-6.tmp-0-00c0ffee00c0ffee")) << "nothing is lost with an empty one";
  EXPECT_FALSE(Exists("latest.0123456789abcdef"));
}

// Where renames have no flags a crash leaves what was being replaced.
TEST_F(CommitTest, AReplacedOneGoesByTheMarkOfItsReplacement) {
  CommitSample(folder_.path(), 10);
  ScriptedFileSystem system([](const FileCall& call) {
    if (call.kind == FileCall::Kind::kRename && call.flags != 0) return EINVAL;
    const bool removes_old =
        call.kind == FileCall::Kind::kUnlink && call.path.find("step-10.old") != std::string::npos;
    return removes_old ? EIO : kAskTheSystem;
  });
  ASSERT_TRUE(TryCommitSample(folder_.path(), 10, system).ok());
  EXPECT_TRUE(Exists("step-10.old/writer"));
  CommitSample(folder_.path(), 20);
  EXPECT_FALSE(Exists("step-10.old"));
  EXPECT_TRUE(Exists("step-10"));
}

TEST_F(CommitTest, NothingIsRemovedThroughALink) {
  const TemporaryFolder elsewhere;
  const fs::path root = folder_.path();
  const auto kept = [&](const char* name) { return elsewhere.path() / name; };
  for (const char* name : {"replaced", "old", "unfinished"}) {
    fs::create_directory(kept(name));
    std::ofstream(kept(name) / kWriterFile) << "";
    std::ofstream(kept(name) / kManifestFile) << "{}";
  }
  CommitSample(root, 10);
  fs::create_directory_symlink(kept("old"), root / "step-10.old");
  fs::create_directory_symlink(kept("unfinished"), root / "step-5.tmp-0-00c0ffee00c0ffee");
  EXPECT_EQ(RemoveMadeFolder(root / "step-10.old").code(), StatusCode::kFailedPrecondition);
  // Saved again, by an exchange of names and without one.
  ScriptedFileSystem no_flags([](const FileCall& call) {
    return call.kind == FileCall::Kind::kRename && call.flags != 0 ? EINVAL : kAskTheSystem;
  });
  for (FileSystem* system : {&FileSystem::System(), static_cast<FileSystem*>(&no_flags)}) {
    const fs::path step = root / (system == &no_flags ? "step-30" : "step-20");
    fs::create_directory_symlink(kept("replaced"), step);
    ASSERT_TRUE(TryCommitSample(root, system == &no_flags ? 30 : 20, *system).ok());
    EXPECT_FALSE(fs::is_symlink(step));
  }
  for (const char* name : {"replaced", "old", "unfinished"}) {
    EXPECT_TRUE(fs::exists(kept(name) / kWriterFile)) << name;
    EXPECT_TRUE(fs::exists(kept(name) / kManifestFile)) << name;
  }
  EXPECT_THAT(Unfinished(), ElementsAre(5)) << "the user's link";
}

TEST_F(CommitTest, TheFirstSaveMakesTheFoldersAboveDurable) {
  std::set<std::string> synced;
  ScriptedFileSystem recording([&](const FileCall& call) {
    if (call.kind == FileCall::Kind::kSync) synced.insert(call.path);
    return kAskTheSystem;
  });
  const fs::path above = fs::canonical(folder_.path());
  // Somebody else has made some of them.
  fs::create_directories(above / "runs/one");
  ASSERT_TRUE(TryCommitSample(above / "runs/one/checkpoints", 10, recording).ok());
  for (const fs::path& folder : {above, above / "runs", above / "runs/one"}) {
    EXPECT_EQ(synced.count(folder), 1u) << folder;
  }
  synced.clear();
  ASSERT_TRUE(TryCommitSample(above / "runs/one/checkpoints", 20, recording).ok());
  EXPECT_EQ(synced.count(above / "runs"), 0u) << "once is enough";
}

TEST_F(CommitTest, AMissingOrShortFileKeepsTheOldState) {
  CommitSample(folder_.path(), 10);
  const Begun begun = Begin(20);
  const fs::path file = begun.directory / "rank-00001.bin";
  fs::resize_file(file, 100);
  EXPECT_EQ(Commit(begun).code(), StatusCode::kDataLoss);
  fs::remove(file);
  EXPECT_THAT(Commit(begun).message(), HasSubstr("rank-00001.bin"));
  EXPECT_FALSE(Exists("step-20"));
  EXPECT_EQ(Slurp(folder_.path() / kLatestFile), "step-10\n");
}

// A host was cut off, the job has gone on without it, and now it is back.
TEST_F(CommitTest, AnOlderGenerationSavesNoMore) {
  Lineage cut_off;
  CommitSample(folder_.path(), 10, &cut_off);
  Lineage living = ResumeSample(folder_.path(), 10, /*generation=*/1);
  ASSERT_TRUE(BeginCheckpoint(folder_.path(), 20, living).ok());
  const Status begun = TryCommitSample(folder_.path(), 20, FileSystem::System(), &cut_off).status();
  EXPECT_EQ(begun.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(begun.message(), HasSubstr("these ranks are of generation 0"));
  EXPECT_THAT(Unfinished(), ElementsAre(20)) << "it is the living generation's";
}

TEST_F(CommitTest, AGenerationThatIsFollowedWhileItSavesDoesNotCommit) {
  Lineage cut_off;
  CommitSample(folder_.path(), 10, &cut_off);
  const Begun begun = Begin(20, cut_off);
  ResumeSample(folder_.path(), 10, /*generation=*/1);
  const std::string latest = Slurp(folder_.path() / kLatestFile);
  EXPECT_EQ(Commit(begun).code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(Exists("step-20"));
  EXPECT_EQ(Slurp(folder_.path() / kLatestFile), latest);
}

// The only folder whose name begins with step-20.other-.
fs::path FindSetAside(const fs::path& root) {
  for (const std::string& name : NamesIn(root)) {
    if (name.starts_with("step-20.other-")) return root / name;
  }
  return {};
}

TEST_F(CommitTest, AnotherJobsCheckpointIsSetAside) {
  TemporaryFolder elsewhere;
  Lineage other{.generation = 0, .start = 61}, own{.generation = 0, .start = 67};
  CommitSample(elsewhere.path(), 20, &other);
  fs::copy(elsewhere.path() / "step-20", folder_.path() / "step-20");
  CommitSample(folder_.path(), 20, &own);
  EXPECT_EQ(ReadManifest(folder_.path() / "step-20")->lineage->start, 67);
  const fs::path aside = FindSetAside(folder_.path());
  ASSERT_FALSE(aside.empty());
  EXPECT_EQ(ReadManifest(aside)->lineage->start, 61);
  CommitSample(folder_.path(), 20, &own);
  EXPECT_THAT(NamesIn(folder_.path()), SizeIs(4)) << "one's own is replaced";
  EXPECT_THAT(ListCheckpoints(folder_.path()).value(), SizeIs(1));
}

TEST_F(CommitTest, TheUsersFilesOfAReplacedOneStay) {
  CommitSample(folder_.path(), 20);
  ASSERT_TRUE(WriteFileAtomically(folder_.path() / "step-20/notes.txt", "mine").ok());
  CommitSample(folder_.path(), 20);
  EXPECT_THAT(NamesIn(FindSetAside(folder_.path())), ElementsAre("notes.txt"));
  EXPECT_FALSE(Exists("step-20/notes.txt"));
  CommitSample(folder_.path(), 30);
  EXPECT_EQ(Slurp(FindSetAside(folder_.path()) / "notes.txt"), "mine");
}

TEST_F(CommitTest, TheUsersFilesOfAnUnfinishedOneDoNotHinderTheNext) {
  const fs::path left = [&] {
    const Begun begun = Begin(20);
    return begun.directory;
  }();
  ASSERT_TRUE(WriteFileAtomically(left / "notes.txt", "mine").ok());
  CommitSample(folder_.path(), 30);
  EXPECT_THAT(NamesIn(left), ElementsAre("notes.txt"));
}

TEST_F(CommitTest, RefusesShardsThatDoNotMakeAFullTensor) {
  Begun begun = Begin(20);
  begun.manifest.tensors[0].shards.pop_back();
  const Status status = Commit(begun);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'weight'"));
}

TEST_F(CommitTest, AbandonRemovesTheUnfinishedOne) {
  AbandonCheckpoint(Begin(20).unfinished);
  EXPECT_THAT(Unfinished(), IsEmpty());
}

TEST_F(CommitTest, AnUnwritableRootIsNamed) {
  const Status status = BeginCheckpoint("/proc/no/such", 1).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("/proc/no/such"));
}

TEST(CheckFreeSpace, ReportsNeededAndFreeSpace) {
  EXPECT_TRUE(CheckFreeSpace(::testing::TempDir(), 1).ok());
  const Status status = CheckFreeSpace(::testing::TempDir(), std::uint64_t{1} << 62);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("4.00 EiB are needed"));
}

}  // namespace
}  // namespace ds::checkpoint
