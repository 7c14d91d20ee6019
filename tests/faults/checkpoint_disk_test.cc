// A disk that fills up or fails under one rank while all save: every rank gets the same error, the
// unfinished folder is gone, and the older checkpoint is as it was.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/file_names.h"
#include "tests/ranks/flat_tensors.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"
#include "tests/support/requirement.h"
#include "tests/support/scripted_file_system.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;
using ds::testing::FileCall;
using ds::testing::kAskTheSystem;
using ds::testing::kPretend;
using ds::testing::RunRanks;
using ds::testing::ScriptedFileSystem;
using ds::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kNotPermitted = 99;
const std::vector<TensorSpec> kDiskSpecs = {{"weight", {1000, 30}}, {"bias", {1000}}};

// The file `name` on a disk that answers `error` from the file's `fail_at`-th write or sync on.
ScriptedFileSystem::Script FailOn(const std::string& name, int error, int fail_at) {
  return [=, calls = 0](const FileCall& call) mutable {
    const bool counts = call.kind == FileCall::Kind::kWrite || call.kind == FileCall::Kind::kSync;
    if (!counts || fs::path(call.path).filename() != name) return kAskTheSystem;
    return calls++ < fail_at ? kAskTheSystem : error;
  };
}

// Every rank's verdict about one save.
std::vector<Status> Save(const fs::path& root, std::int64_t step,
                         const ScriptedFileSystem::Script& script) {
  ScriptedFileSystem files(script);
  const SaveRequest request{.root = root, .step = step, .file_system = &files};
  std::vector<Status> verdicts(kRanks);
  RunRanks(kRanks, [&](comm::Communicator& world) {
    FlatTensors part(kDiskSpecs, Holding::kFlatShards, world.rank(), world.size());
    part.Fill(3);
    Stateful* const parts[] = {&part};
    verdicts[world.rank()] = SaveCheckpoint(request, parts, world).status();
  });
  return verdicts;
}

std::vector<Status> Save(const fs::path& root, std::int64_t step) {
  return Save(root, step, [](const FileCall&) { return kAskTheSystem; });
}

class CheckpointDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const Status& verdict : Save(root_, 10)) EXPECT_TRUE(verdict.ok());
  }
  void ExpectOnlyStepTen() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_)) {
      names.push_back(entry.path().filename().string());
    }
    EXPECT_THAT(names, ::testing::UnorderedElementsAre(".lock", "step-10", "latest"));
    EXPECT_EQ(FindNewestGood(root_).value().found->step, 10);
  }

  const TemporaryFolder folder_;
  const fs::path root_ = folder_.path() / "checkpoints";
};

TEST_F(CheckpointDisk, AFullDiskUnderOneRankFailsAllAndLeavesNothing) {
  // Two tensors: two writes and a sync.
  for (int fail_at = 0; fail_at < 3; ++fail_at) {
    const auto verdicts = Save(root_, 20, FailOn("rank-00001.bin", ENOSPC, fail_at));
    for (const Status& verdict : verdicts) {
      EXPECT_EQ(verdict.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(verdict.message(), HasSubstr("rank 1: no space for the 44.0 KiB"));
    }
    ExpectOnlyStepTen();
  }
}

TEST_F(CheckpointDisk, AFailingDiskFailsAllAndLeavesNothing) {
  for (const Status& verdict : Save(root_, 20, FailOn("rank-00002.bin", EIO, 2))) {
    EXPECT_THAT(verdict.message(),
                AllOf(HasSubstr("rank 2: "), HasSubstr("rank-00002.bin: Input/output error")));
  }
  ExpectOnlyStepTen();
}

TEST_F(CheckpointDisk, DetectsLostWritesBeforeTheRename) {
  const auto lie = [](const FileCall& call) {
    return call.path.ends_with(".bin") && call.kind == FileCall::Kind::kWrite ? kPretend
                                                                              : kAskTheSystem;
  };
  for (const Status& verdict : Save(root_, 20, lie)) {
    EXPECT_EQ(verdict.code(), StatusCode::kDataLoss);
    EXPECT_THAT(verdict.message(), HasSubstr("read back after writing"));
  }
  ExpectOnlyStepTen();
}

// Gives this process a mount namespace of its own, so that nothing outside sees its mounts.
bool EnterOwnMountNamespace() {
  const std::string user = std::to_string(::getuid());
  const std::string group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " + user + " 1";
  std::ofstream("/proc/self/gid_map") << "0 " + group + " 1";
  return ::getuid() == 0;
}

// In a child.
void SaveOnSmallDiskAndExit(const fs::path& disk) {
  if (!EnterOwnMountNamespace() || ::mount("none", disk.c_str(), "tmpfs", 0, "size=300k") != 0) {
    ::_exit(kNotPermitted);
  }
  const fs::path root = disk / "checkpoints";
  for (const Status& verdict : Save(root, 10)) EXPECT_TRUE(verdict.ok());
  // 132 KiB a checkpoint: the second fits too, the third does not.
  for (const Status& verdict : Save(root, 20)) EXPECT_TRUE(verdict.ok());
  for (const Status& verdict : Save(root, 30)) {
    EXPECT_EQ(verdict.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(verdict.message(), HasSubstr("132 KiB are needed"));
  }
  for (const auto& entry : fs::directory_iterator(root)) {
    EXPECT_FALSE(ParseUnfinishedName(entry.path().filename().string())) << entry.path();
  }
  EXPECT_EQ(FindNewestGood(root).value().found->step, 20);
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST_F(CheckpointDisk, AReallyFullDiskKeepsTheOlderCheckpoints) {
  const fs::path disk = folder_.path() / "disk";
  fs::create_directory(disk);
  const pid_t child = ::fork();
  if (child == 0) SaveOnSmallDiskAndExit(disk);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNotPermitted) {
    return ds::testing::SkipWithout("mounts", "mounting is not permitted here");
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(CheckpointDisk, AFailedSaveCanBeRepeated) {
  Save(root_, 20, FailOn("rank-00000.bin", ENOSPC, 1));
  for (const Status& verdict : Save(root_, 20)) EXPECT_TRUE(verdict.ok());
  EXPECT_EQ(FindNewestGood(root_).value().found->step, 20);
}

TEST_F(CheckpointDisk, ARootThatCannotBeMadeFailsAll) {
  for (const Status& verdict : Save("/proc/nowhere", 1)) {
    EXPECT_THAT(verdict.message(), HasSubstr("rank 0: the checkpoint folder /proc/nowhere: "));
  }
}

}  // namespace
}  // namespace ds::checkpoint
