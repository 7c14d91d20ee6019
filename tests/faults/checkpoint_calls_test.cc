// A save whose calls to the file system fail one after the other, and as other file systems fail
// them: whatever happens at whichever call, a good checkpoint is found, what is listed is whole,
// and the next save succeeds and leaves nothing of the failed one behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "runtime/checkpoint_format/catalog.h"
#include "tests/support/program.h"
#include "tests/support/scripted_file_system.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;
using ds::testing::FileCall;
using ds::testing::kAskTheSystem;
using ds::testing::kPretend;
using ds::testing::ScriptedFileSystem;
using ds::testing::TemporaryFolder;

// A file system that this machine need not have.
struct Kind {
  const char* name;
  bool rename_flags;
  bool locks;
};

// What goes wrong at one call.
struct Fault {
  const char* name;
  int error;
  bool lasts;  // every later call fails, too: nobody cleans up, as behind a crash
};

int AnswerAs(const Kind& kind, const FileCall& call) {
  if (call.kind == FileCall::Kind::kRename && call.flags != 0 && !kind.rename_flags) return EINVAL;
  if (call.kind == FileCall::Kind::kLock && !kind.locks) return ENOLCK;
  // The disk stays up in these tests.
  return call.kind == FileCall::Kind::kSync ? kPretend : kAskTheSystem;
}

// Some 10,000 saves in all have no disk to wait for.
constexpr char kMemory[] = "/dev/shm";

// Replaces the checkpoint of step 20 and adds one of step 30 while `fault` comes at call `at`.
// Returns whether the two saves have made that many calls.
bool SaveWithFault(const Kind& kind, const Fault& fault, int at) {
  const TemporaryFolder folder{fs::path(kMemory)};
  const fs::path root = folder.path() / "checkpoints";
  ScriptedFileSystem sound([&](const FileCall& call) { return AnswerAs(kind, call); });
  Lineage lineage = CommitTenAndTwenty(root, sound);
  ScriptedFileSystem faulty([&](const FileCall& call) {
    const bool hit = fault.lasts ? call.number >= at : call.number == at;
    return hit ? fault.error : AnswerAs(kind, call);
  });
  const bool replaced = TryCommitSample(root, 20, faulty, &lineage).ok();
  const bool added = replaced && TryCommitSample(root, 30, faulty, &lineage).ok();
  ExpectGoodCheckpoints(root, added ? 30 : 20);

  // Without locks what a writer left can only be told from a living one's by its generation.
  if (!kind.locks) ++lineage.generation;
  const auto again = TryCommitSample(root, 30, sound, &lineage);
  EXPECT_TRUE(again.ok()) << again.status().message();
  ExpectGoodCheckpoints(root, 30);
  EXPECT_THAT(NamesIn(root),
              ::testing::UnorderedElementsAre(".lock", "latest", "step-10", "step-20", "step-30"));
  return faulty.calls() > at;
}

class CheckpointCalls : public ::testing::TestWithParam<Kind> {};

TEST_P(CheckpointCalls, AFaultAtAnyCallLeavesAGoodCheckpoint) {
  const Fault faults[] = {{"EINVAL", EINVAL, false}, {"EIO", EIO, false},
                          {"ENOSPC", ENOSPC, false}, {"ESTALE", ESTALE, false},
                          {"ENOLCK", ENOLCK, false}, {"crash", EIO, true}};
  for (const Fault& fault : faults) {
    int at = 0;
    for (bool reached = true; reached; ++at) {
      SCOPED_TRACE(::testing::Message() << fault.name << " at call " << at);
      reached = SaveWithFault(GetParam(), fault, at);
      if (HasFailure()) return;
    }
    EXPECT_GT(at, 40) << "two saves make more calls than that";
  }
}

INSTANTIATE_TEST_SUITE_P(FileSystems, CheckpointCalls,
                         ::testing::Values(Kind{"Local", true, true},
                                           Kind{"NoRenameFlags", false, true},
                                           Kind{"NoLocks", true, false},
                                           Kind{"Neither", false, false}),
                         [](const auto& info) { return info.param.name; });

TEST(CheckpointCallsCovered, AReplacementMakesCallsOfEveryKind) {
  const TemporaryFolder folder;
  std::set<FileCall::Kind> kinds;
  ScriptedFileSystem recording([&](const FileCall& call) {
    kinds.insert(call.kind);
    return kAskTheSystem;
  });
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(TryCommitSample(folder.path(), 20, recording).ok());
  using Kind = FileCall::Kind;
  EXPECT_THAT(kinds, ::testing::UnorderedElementsAre(Kind::kOpen, Kind::kMakeDirectory,
                                                     Kind::kWrite, Kind::kSync, Kind::kRename,
                                                     Kind::kUnlink, Kind::kLock, Kind::kClose));
}

TEST(CheckpointCallsOfANewRun, AFaultWhileItsFoldersAreMadeIsOnlyThatSaves) {
  int folders = 0;
  bool reached = true;
  for (int at = 0; reached; ++at) {
    SCOPED_TRACE(::testing::Message() << "at call " << at);
    const TemporaryFolder folder{fs::path(kMemory)};
    const fs::path root = folder.path() / "runs" / "first" / "checkpoints";
    folders = 0;
    ScriptedFileSystem faulty([&](const FileCall& call) {
      if (call.kind == FileCall::Kind::kMakeDirectory) ++folders;
      return call.number == at ? EIO : AnswerAs({"Local", true, true}, call);
    });
    static_cast<void>(TryCommitSample(root, 10, faulty));
    reached = faulty.calls() > at;
    EXPECT_TRUE(TryCommitSample(root, 10, FileSystem::System()).ok());
    EXPECT_EQ(FindNewestGood(root).value().found->step, 10);
  }
  EXPECT_EQ(folders, 4) << "of the save without a fault: three for the root and the checkpoint's";
}

// What fails behind the rename: the checkpoint is good, and the save says so.
TEST(CheckpointCallsOnAFullDisk, ALatestThatCannotBeWrittenFailsNoSave) {
  const TemporaryFolder folder;
  Lineage lineage;
  CommitSample(folder.path(), 10, &lineage);
  ScriptedFileSystem full([&](const FileCall& call) {
    const bool latest = fs::path(call.path).filename().string().starts_with("latest");
    return latest && call.kind == FileCall::Kind::kWrite ? ENOSPC : kAskTheSystem;
  });
  const auto committed = TryCommitSample(folder.path(), 20, full, &lineage);
  ASSERT_TRUE(committed.ok()) << committed.status().message();
  EXPECT_EQ(FindNewestGood(folder.path()).value().found->step, 20);
}

TEST(CheckpointCallsOnAFailingDisk, AnOlderOneThatCannotBeRemovedFailsNoSave) {
  for (const bool rename_flags : {true, false}) {
    const TemporaryFolder folder;
    const Kind kind{"", rename_flags, true};
    CommitSample(folder.path(), 20);
    ScriptedFileSystem failing([&](const FileCall& call) {
      return call.kind == FileCall::Kind::kUnlink ? EIO : AnswerAs(kind, call);
    });
    EXPECT_TRUE(TryCommitSample(folder.path(), 20, failing).ok());
    CommitSample(folder.path(), 30);
    EXPECT_THAT(NamesIn(folder.path()),
                ::testing::UnorderedElementsAre(".lock", "latest", "step-20", "step-30"));
  }
}

TEST(CheckpointCallsOnNfs, ASaveThatCannotTakeTheNameGivesTheOlderOneItsNameBack) {
  const TemporaryFolder folder;
  const Kind nfs{"NoRenameFlags", false, true};
  ScriptedFileSystem sound([&](const FileCall& call) { return AnswerAs(nfs, call); });
  CommitTenAndTwenty(folder.path(), sound);
  int renames_to_final = 0;
  ScriptedFileSystem stale([&](const FileCall& call) {
    const bool to_final = call.kind == FileCall::Kind::kRename && call.flags == 0 &&
                          fs::path(call.path).filename() == "step-20";
    // The first finds the name taken, the second is the one that puts the new one in its place.
    if (to_final && ++renames_to_final == 2) return ESTALE;
    return AnswerAs(nfs, call);
  });
  EXPECT_FALSE(TryCommitSample(folder.path(), 20, stale).ok());
  EXPECT_THAT(NamesIn(folder.path()),
              ::testing::UnorderedElementsAre(".lock", "latest", "step-10", "step-20"));
}

}  // namespace
}  // namespace ds::checkpoint
