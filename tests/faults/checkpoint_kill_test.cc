// A process that saves checkpoints is stopped at each of its system calls. What lies on the disk
// then is what a kill would leave: it must hold a good checkpoint, the old or the new one. And a
// save after a kill must succeed, wherever the kill came.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/retention.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;
using ds::testing::TemporaryFolder;

constexpr int kTraceRefused = 99;

// Replaces the checkpoint of step 20 and adds one of step 30.
void SaveTwice(const fs::path& root) {
  CommitSample(root, 20);
  CommitSample(root, 30);
}

// A child that does `work`, traced.
class TracedSave {
 public:
  explicit TracedSave(const fs::path& root,
                      const std::function<void(const fs::path&)>& work = SaveTwice)
      : child_(::fork()) {
    if (child_ == 0) {
      if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kTraceRefused);
      ::raise(SIGSTOP);
      work(root);
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    ::waitpid(child_, &status_, 0);
  }
  ~TracedSave() {
    if (ended()) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, &status_, 0);
  }
  TracedSave(const TracedSave&) = delete;
  TracedSave& operator=(const TracedSave&) = delete;

  bool ended() const { return WIFEXITED(status_) || WIFSIGNALED(status_); }
  int exit_status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1; }

  // Runs to the entry or the exit of the next system call, or to the end.
  void RunToNextStop() {
    ::ptrace(PTRACE_SYSCALL, child_, nullptr, nullptr);
    ::waitpid(child_, &status_, 0);
  }

 private:
  pid_t child_;
  int status_ = 0;
};

// A kill never leaves the newest one unnamed.
void ExpectGoodAndNamed(const fs::path& root) {
  ExpectGoodCheckpoints(root, 20);
  const NewestCheckpoint newest = FindNewestGood(root).value();
  EXPECT_TRUE(newest.found->latest);
  EXPECT_TRUE(newest.found->step == 20 || newest.found->step == 30);
}

TEST(CheckpointKill, EveryMomentOfASaveHasAGoodCheckpoint) {
  const TemporaryFolder folder;
  CommitTenAndTwenty(folder.path(), FileSystem::System());
  TracedSave save(folder.path());
  if (save.ended())
    return ds::testing::SkipWithout("tracing", "tracing a child is not permitted here");
  int stops = 0;
  for (; !save.ended(); save.RunToNextStop(), ++stops) {
    SCOPED_TRACE(stops);
    ExpectGoodAndNamed(folder.path());
    if (HasFailure()) return;
  }
  EXPECT_EQ(save.exit_status(), 0);
  EXPECT_GT(stops, 100) << "two saves make more system calls than that";
  EXPECT_EQ(FindNewestGood(folder.path()).value().found->step, 30);
}

TEST(CheckpointKill, ASaveAfterAKillSucceeds) {
  constexpr int kStopsBetweenKills = 31;
  bool finished = false;
  for (int kill_at = 1; !finished; kill_at += kStopsBetweenKills) {
    const TemporaryFolder folder;
    CommitTenAndTwenty(folder.path(), FileSystem::System());
    {
      TracedSave save(folder.path());
      if (save.ended())
        return ds::testing::SkipWithout("tracing", "tracing a child is not permitted here");
      for (int stop = 0; stop < kill_at && !save.ended(); ++stop) save.RunToNextStop();
      finished = save.ended();
    }
    SCOPED_TRACE(kill_at);
    CommitSample(folder.path(), 30);
    ExpectGoodAndNamed(folder.path());
    EXPECT_EQ(FindNewestGood(folder.path()).value().found->step, 30);
    if (HasFailure()) return;
  }
}

// Saves step 30 and removes all checkpoints but the newest.
void SaveAndPrune(const fs::path& root) {
  Lineage lineage = AssumeLineage(21);
  CommitSample(root, 30, &lineage);
  PruneCheckpoints(root, {.limit = 1}, lineage);
}

TEST(CheckpointKill, EveryMomentOfARemovalHasAGoodCheckpoint) {
  const TemporaryFolder folder;
  CommitTenAndTwenty(folder.path(), FileSystem::System());
  TracedSave save(folder.path(), SaveAndPrune);
  if (save.ended())
    return ds::testing::SkipWithout("tracing", "tracing a child is not permitted here");
  for (; !save.ended(); save.RunToNextStop()) {
    // Its lineage shows that step 30 is newer, before `latest` names it.
    ExpectGoodCheckpoints(folder.path(), 20);
    const auto all = ListCheckpoints(folder.path()).value();
    const bool has_newest = all.back().step == 30;
    EXPECT_TRUE(has_newest || all.size() == 2) << "nothing goes before the newer one is there";
    if (HasFailure()) return;
  }
  EXPECT_EQ(save.exit_status(), 0);
  EXPECT_EQ(ListCheckpoints(folder.path()).value().size(), 1u);
}

TEST(CheckpointKill, ASaveAfterAKilledRemovalEndsIt) {
  constexpr int kStopsBetweenKills = 31;
  bool finished = false;
  for (int kill_at = 1; !finished; kill_at += kStopsBetweenKills) {
    const TemporaryFolder folder;
    CommitTenAndTwenty(folder.path(), FileSystem::System());
    {
      TracedSave save(folder.path(), SaveAndPrune);
      if (save.ended())
        return ds::testing::SkipWithout("tracing", "tracing a child is not permitted here");
      for (int stop = 0; stop < kill_at && !save.ended(); ++stop) save.RunToNextStop();
      finished = save.ended();
    }
    SCOPED_TRACE(kill_at);
    SaveAndPrune(folder.path());
    ExpectGoodAndNamed(folder.path());
    EXPECT_EQ(NamesIn(folder.path()).size(), 3u) << "step-30, latest and the lock";
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ds::checkpoint
