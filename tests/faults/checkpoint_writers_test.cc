// Several writers of one checkpoint folder, each a process: none removes what a living one is
// writing, none commits over another's files, and what a dead one left goes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/commit.h"
#include "runtime/checkpoint_format/latest.h"
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
using ::testing::IsEmpty;

int HaveNoLocks(const FileCall& call) {
  return call.kind == FileCall::Kind::kLock ? ENOLCK : kAskTheSystem;
}

std::vector<fs::path> UnfinishedIn(const fs::path& root) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (ParseUnfinishedName(entry.path().filename().string())) found.push_back(entry.path());
  }
  return found;
}

void ExpectComplete(const fs::path& directory) {
  const VerifyReport report = VerifyCheckpoint(directory).value();
  EXPECT_TRUE(report.ok()) << Describe(report.damages.front());
}

// Begins step `step`, writes the files of another step, so that two writers' bytes differ, and has
// `before_commit` look on.
template <typename Look>
Status SaveAs(int writer, const fs::path& root, std::int64_t step, FileSystem& system,
              Look before_commit) {
  constexpr std::int64_t kApart = 1000;
  DS_ASSIGN_OR_RETURN(const UnfinishedCheckpoint unfinished,
                      BeginCheckpoint(root, step, Lineage{}, system));
  const fs::path directory = UnfinishedDirectory(root, unfinished.name);
  DS_ASSIGN_OR_RETURN(Manifest manifest,
                      WriteSampleFiles(directory, writer * kApart + step, system));
  manifest.step = step;
  manifest.lineage = Lineage{};
  before_commit();
  return CommitCheckpoint(unfinished, manifest, system).status();
}

// A process that saves step 20 and stops right before the commit.
class OtherWriter {
 public:
  OtherWriter(const fs::path& root, FileSystem& system) : child_(::fork()) {
    if (child_ == 0) {
      const Status saved = SaveAs(1, root, 20, system, [] { ::raise(SIGSTOP); });
      ::_exit(saved.ok() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child_, &status, WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status)) << "it came as far as the commit";
  }
  ~OtherWriter() {
    if (child_ > 0) End(SIGKILL);
  }
  OtherWriter(const OtherWriter&) = delete;
  OtherWriter& operator=(const OtherWriter&) = delete;

  // Its wait status after `signal`, SIGCONT to let it commit.
  int End(int signal) {
    int status = 0;
    ::kill(child_, signal);
    ::waitpid(std::exchange(child_, 0), &status, 0);
    return status;
  }

 private:
  pid_t child_;
};

class CheckpointWriters : public ::testing::Test {
 protected:
  // What the process of this test does meanwhile.
  void SaveTwentyAndThirty(FileSystem& system) {
    for (const int step : {20, 30}) {
      const Status saved = SaveAs(2, root_, step, system, [] {});
      EXPECT_TRUE(saved.ok()) << saved.message();
    }
  }
  const TemporaryFolder folder_;
  const fs::path root_ = folder_.path() / "checkpoints";
};

TEST_F(CheckpointWriters, KeepsAndCommitsFilesOfALiveWriter) {
  ScriptedFileSystem without_locks(HaveNoLocks);
  for (FileSystem* system : {&FileSystem::System(), static_cast<FileSystem*>(&without_locks)}) {
    OtherWriter other(root_, *system);
    const std::vector<fs::path> begun = UnfinishedIn(root_);
    SaveTwentyAndThirty(*system);
    EXPECT_EQ(UnfinishedIn(root_), begun);
    EXPECT_EQ(other.End(SIGCONT), 0);
    ExpectComplete(root_ / "step-20");
    ExpectComplete(root_ / "step-30");
    EXPECT_THAT(UnfinishedIn(root_), IsEmpty());
  }
}

TEST_F(CheckpointWriters, RemovesFilesOfADeadWriter) {
  OtherWriter other(root_, FileSystem::System());
  EXPECT_EQ(UnfinishedIn(root_).size(), 1u);
  EXPECT_TRUE(WIFSIGNALED(other.End(SIGKILL)));
  CommitSample(root_, 30);
  EXPECT_THAT(UnfinishedIn(root_), IsEmpty());
}

// No proof that a stopped one lives, and none that a dead one does not: the generation decides.
TEST_F(CheckpointWriters, WithoutLocksTheNextGenerationRemovesLeftovers) {
  ScriptedFileSystem system(HaveNoLocks);
  { OtherWriter other(root_, system); }
  ASSERT_TRUE(TryCommitSample(root_, 30, system).ok());
  EXPECT_EQ(UnfinishedIn(root_).size(), 1u);
  Lineage next = ResumeSample(root_, 30, /*generation=*/1);
  ASSERT_TRUE(TryCommitSample(root_, 40, system, &next).ok());
  EXPECT_THAT(UnfinishedIn(root_), IsEmpty());
}

TEST_F(CheckpointWriters, AFreeLockOfAnotherHostsWriterProvesNothing) {
  { OtherWriter other(root_, FileSystem::System()); }
  const std::vector<fs::path> left = UnfinishedIn(root_);
  ASSERT_EQ(left.size(), 1u);
  std::ofstream(left.front() / "writer") << "another host's boot\n";
  CommitSample(root_, 30);
  EXPECT_EQ(UnfinishedIn(root_), left);
  Lineage next = ResumeSample(root_, 30, /*generation=*/1);
  CommitSample(root_, 40, &next);
  EXPECT_THAT(UnfinishedIn(root_), IsEmpty());
}

TEST_F(CheckpointWriters, ALivingWriterOfAFollowedGenerationKeepsItsFilesAndCommitsNothing) {
  CommitSample(root_, 10);
  OtherWriter other(root_, FileSystem::System());
  const std::vector<fs::path> begun = UnfinishedIn(root_);
  Lineage next = ResumeSample(root_, 10, /*generation=*/1);
  CommitSample(root_, 30, &next);
  EXPECT_EQ(UnfinishedIn(root_), begun);
  EXPECT_EQ(WEXITSTATUS(other.End(SIGCONT)), 1);
  EXPECT_FALSE(fs::exists(root_ / "step-20"));
}

TEST_F(CheckpointWriters, ConcurrentSavesOfTheSameStepsAreComplete) {
  constexpr int kSteps = 25;
  const auto save_all = [&](int writer) {
    bool good = true;
    for (int step = 1; step <= kSteps; ++step) {
      good = SaveAs(writer, root_, step, FileSystem::System(), [] {}).ok() && good;
    }
    return good;
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(save_all(1) ? 0 : 1);
  EXPECT_TRUE(save_all(2));
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const std::vector<ListedCheckpoint> all = ListCheckpoints(root_).value();
  EXPECT_EQ(all.size(), std::size_t{kSteps});
  for (const ListedCheckpoint& listed : all) ExpectComplete(listed.directory);
  EXPECT_THAT(UnfinishedIn(root_), IsEmpty());
}

// A generation that is taken over between the check and `latest` would make itself the living one.
TEST_F(CheckpointWriters, AGenerationEndsBeforeOrAfterACommitButNotInside) {
  Lineage lineage;
  CommitSample(root_, 10, &lineage);
  std::promise<void> came;  // to the lock, or to the end
  std::once_flag once;
  const auto come = [&] { std::call_once(once, [&] { came.set_value(); }); };
  ScriptedFileSystem successor([&](const FileCall& call) {
    if (call.kind == FileCall::Kind::kLock) come();
    return kAskTheSystem;
  });
  std::thread follow;
  ScriptedFileSystem writer([&](const FileCall& call) {
    if (call.kind == FileCall::Kind::kRename && call.path == root_ / "step-20") {
      follow = std::thread([&] {
        EXPECT_TRUE(TakeOver(root_ / "step-10", /*generation=*/1, /*start=*/0, successor).ok());
        come();
      });
      came.get_future().wait();
    }
    return kAskTheSystem;
  });
  EXPECT_TRUE(TryCommitSample(root_, 20, writer, &lineage).ok());
  follow.join();
  EXPECT_EQ(ReadLatest(root_).value()->generation, 1);
}

}  // namespace
}  // namespace ds::checkpoint
