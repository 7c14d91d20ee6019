// Checkpoints on a real FUSE mount that answers as NFS and sshfs do: no flags for renameat2, and
// here and there no locks. Saved, saved again, killed at every call, loaded and verified.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <fstream>
#include <span>

#include "runtime/checkpoint_format/shard_reader.h"
#include "tests/support/fuse_mount.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"
#include "tests/support/scripted_file_system.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;
using ds::testing::FileCall;
using ds::testing::FuseAnswers;
using ds::testing::FuseMount;
using ds::testing::kAskTheSystem;
using ds::testing::ScriptedFileSystem;
using ds::testing::TemporaryFolder;
using ::testing::UnorderedElementsAre;

constexpr int kNoMount = 99;
constexpr long kFuseMagic = 0x65735546;  // FUSE_SUPER_MAGIC

struct NamedAnswers {
  const char* name;
  FuseAnswers answers;
};

// The sample's "weight", read as a load reads it.
void ExpectLoads(const fs::path& directory, std::int64_t step) {
  const Manifest manifest = ReadManifest(directory).value();
  EXPECT_EQ(manifest.step, step);
  std::vector<float> values(3000, -1.0F);
  for (const StoredShard& shard : manifest.tensors[0].shards) {
    const auto into = std::span(values).subspan(static_cast<std::size_t>(shard.region.flat_start),
                                                static_cast<std::size_t>(shard.region.flat_count));
    ShardReader reader = ShardReader::Open(directory, shard).value();
    EXPECT_TRUE(reader.Read(0, std::as_writable_bytes(into)).ok());
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], static_cast<float>(i) + static_cast<float>(step));
  }
}

void SaveAndSaveAgain(const fs::path& root) {
  Lineage lineage;
  FileSystem& system = FileSystem::System();
  for (const int step : {10, 20, 20, 30}) {
    const auto saved = TryCommitSample(root, step, system, &lineage);
    ASSERT_TRUE(saved.ok()) << "step " << step << ": " << saved.status().message();
    ExpectLoads(*saved, step);
  }
  EXPECT_THAT(NamesIn(root),
              UnorderedElementsAre(".lock", "latest", "step-10", "step-20", "step-30"));
  ExpectGoodCheckpoints(root, 30);
}

// Replaces step 20 in a process that is killed at its call `at`. Returns whether it was.
bool KillSaveAt(const fs::path& root, int at, Lineage lineage) {
  const pid_t writer = ::fork();
  if (writer == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ScriptedFileSystem killing([at](const FileCall& call) {
      if (call.number == at) ::raise(SIGKILL);
      return kAskTheSystem;
    });
    ::_exit(TryCommitSample(root, 20, killing, &lineage).ok() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(writer, &status, 0);
  if (WIFSIGNALED(status)) return true;
  EXPECT_EQ(WEXITSTATUS(status), 0) << "a save whose every call works";
  return false;
}

void SaveAfterAKillAtEveryCall(const fs::path& folder) {
  int at = 0;
  for (bool killed = true; killed; ++at) {
    SCOPED_TRACE(::testing::Message() << "killed at call " << at);
    const fs::path root = folder / std::to_string(at);
    Lineage after_ten = CommitTenAndTwenty(root, FileSystem::System());
    killed = KillSaveAt(root, at, after_ten);
    ExpectGoodCheckpoints(root, 20);
    // Without locks what a killed writer left is told from a living one's by its generation alone.
    after_ten.generation += 1;
    const auto again = TryCommitSample(root, 30, FileSystem::System(), &after_ten);
    ASSERT_TRUE(again.ok()) << again.status().message();
    ExpectGoodCheckpoints(root, 30);
    ExpectLoads(root / "step-20", 20);
    EXPECT_THAT(NamesIn(root),
                UnorderedElementsAre(".lock", "latest", "step-10", "step-20", "step-30"));
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(at, 20) << "a replacement makes more calls than that";
}

// The mount is what the tests are about.
void ExpectAnswers(const fs::path& mounted, const FuseAnswers& answers) {
  FileSystem& system = FileSystem::System();
  const fs::path file = mounted / "file", renamed = mounted / "renamed";
  const int fd = system.Open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(system.Lock(fd, LOCK_EX | LOCK_NB), answers.locks ? 0 : -ENOLCK);
  EXPECT_EQ(system.Close(fd), 0);
  EXPECT_EQ(system.Rename(file, renamed, RENAME_NOREPLACE), answers.rename_flags ? 0 : -EINVAL);
  EXPECT_EQ(system.Unlink(answers.rename_flags ? renamed : file, 0), 0);
}

class CheckpointFuse : public ::testing::TestWithParam<NamedAnswers> {
 protected:
  // Runs `body(folder)` on a mount of its own in a child, which ends it, however it ends itself.
  template <typename Body>
  void OnMount(Body body) {
    const fs::path backing = folder_.path() / "backing", mounted = folder_.path() / "mounted";
    fs::create_directory(backing);
    fs::create_directory(mounted);
    const fs::path why_file = folder_.path() / "why_not";
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is ended leaves no mount
      // Nothing may leave this process but by _exit: the rest of the tests is its parent's.
      try {
        ::_exit(RunOnMount(backing, mounted, why_file, body));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(1);
      }
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_TRUE(fs::is_empty(mounted)) << "nothing is mounted here, nor left over";
    if (WEXITSTATUS(status) == kNoMount) return testing::SkipWithout("fuse", Slurp(why_file));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }

  // In the child; returns its exit status.
  template <typename Body>
  int RunOnMount(const fs::path& backing, const fs::path& mounted, const fs::path& why_file,
                 Body body) {
    const FuseMount mount(backing, mounted, GetParam().answers);
    if (!mount.why_not().empty()) {
      std::ofstream(why_file) << mount.why_not();
      return kNoMount;
    }
    struct statfs info {};
    EXPECT_EQ(::statfs(mounted.c_str(), &info), 0);
    EXPECT_EQ(info.f_type, kFuseMagic) << "this is about FUSE";
    ExpectAnswers(mounted, GetParam().answers);
    body(mounted);
    return HasFailure() ? 1 : 0;
  }

  const TemporaryFolder folder_;
};

TEST_P(CheckpointFuse, SavesAndSavesAgain) { OnMount(SaveAndSaveAgain); }

TEST_P(CheckpointFuse, SavesAfterAKillAtEveryCall) { OnMount(SaveAfterAKillAtEveryCall); }

INSTANTIATE_TEST_SUITE_P(Mounts, CheckpointFuse,
                         ::testing::Values(NamedAnswers{"PassesAll", {}},
                                           NamedAnswers{"NoRenameFlags", {.rename_flags = false}},
                                           NamedAnswers{"Neither",
                                                        {.rename_flags = false, .locks = false}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ds::checkpoint
