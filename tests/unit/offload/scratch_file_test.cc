#include "runtime/offload/scratch_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <fstream>

#include "tests/support/program.h"
#include "tests/support/scripted_file_system.h"

namespace ds::offload {
namespace {

using ds::testing::FileCall;
using ds::testing::kAskTheSystem;
using ds::testing::ScriptedFileSystem;
using ds::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool IsUnnamed(const FileCall& call) {
  return call.kind == FileCall::Kind::kOpen && (call.flags & O_TMPFILE) == O_TMPFILE;
}

// A file system without O_TMPFILE.
ScriptedFileSystem::Script WithoutUnnamedFiles() {
  return [](const FileCall& call) { return IsUnnamed(call) ? EOPNOTSUPP : kAskTheSystem; };
}

TEST(ScratchFile, HasNoName) {
  const TemporaryFolder folder;
  for (const bool has_unnamed_files : {true, false}) {
    ScriptedFileSystem system(has_unnamed_files ? [](const FileCall&) { return kAskTheSystem; }
                                                : WithoutUnnamedFiles());
    const StatusOr<ScratchFile> file = ScratchFile::Create(folder.path(), system);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    EXPECT_EQ(file->facts().folder, folder.path());
    EXPECT_GE(file->facts().alignment, 4096);
  }
}

TEST(ScratchFile, LeavesNothingWhenItsProcessIsKilled) {
  const TemporaryFolder folder;
  for (const bool has_unnamed_files : {true, false}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ScriptedFileSystem system(has_unnamed_files ? [](const FileCall&) { return kAskTheSystem; }
                                                  : WithoutUnnamedFiles());
      StatusOr<ScratchFile> file = ScratchFile::Create(folder.path(), system);
      if (!file.ok() || !file->Grow(1 << 20).ok()) ::_exit(1);
      ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the file could not be made";
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

TEST(ScratchFile, IsReadThroughThePageCacheWhereNothingElseGoes) {
  const TemporaryFolder folder;
  ScriptedFileSystem system(
      [](const FileCall& call) { return (call.flags & O_DIRECT) != 0 ? EINVAL : kAskTheSystem; });
  const StatusOr<ScratchFile> file = ScratchFile::Create(folder.path(), system);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_FALSE(file->facts().direct);
}

// Such a file system refuses O_DIRECT when it has made the file.
TEST(ScratchFile, LeavesNoNameWhereThePageCacheCannotBePassed) {
  const TemporaryFolder folder;
  for (const bool has_unnamed_files : {true, false}) {
    ScriptedFileSystem system([&](const FileCall& call) {
      if (!has_unnamed_files && IsUnnamed(call)) return EOPNOTSUPP;
      if ((call.flags & O_DIRECT) == 0) return kAskTheSystem;
      if (!IsUnnamed(call)) std::ofstream(call.path) << "made";
      return EINVAL;
    });
    const StatusOr<ScratchFile> file = ScratchFile::Create(folder.path(), system);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_FALSE(file->facts().direct);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << has_unnamed_files;
  }
}

TEST(ScratchFile, RefusesAFolderThatIsNotThere) {
  const StatusOr<ScratchFile> file =
      ScratchFile::Create("/nonexistent/drive", FileSystem::System());
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.status().message(),
              AllOf(HasSubstr("/nonexistent/drive on host "), HasSubstr("mount its drive")));
}

TEST(ScratchFile, RefusesAFolderThatIsAFile) {
  const StatusOr<ScratchFile> file = ScratchFile::Create("/dev/null", FileSystem::System());
  ASSERT_FALSE(file.ok());
  EXPECT_THAT(file.status().message(), HasSubstr("Not a directory"));
}

TEST(ScratchFile, RefusesAFolderThatItMayNotWriteTo) {
  const TemporaryFolder folder;
  ScriptedFileSystem system([](const FileCall& call) {
    return call.kind == FileCall::Kind::kOpen ? EACCES : kAskTheSystem;
  });
  const StatusOr<ScratchFile> file = ScratchFile::Create(folder.path(), system);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(file.status().message(), HasSubstr(folder.path().string()));
}

TEST(ScratchFile, ReportsAFullDisk) {
  const TemporaryFolder folder;
  ScriptedFileSystem system([](const FileCall& call) {
    return call.kind == FileCall::Kind::kAllocate ? ENOSPC : kAskTheSystem;
  });
  StatusOr<ScratchFile> file = ScratchFile::Create(folder.path(), system);
  ASSERT_TRUE(file.ok());
  const Status grown = file->Grow(3 << 20);
  EXPECT_EQ(grown.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(grown.message(),
              AllOf(HasSubstr("3.00 MiB"), HasSubstr(folder.path().string()), HasSubstr("on host "),
                    HasSubstr("No space left on device"), HasSubstr(" free")));
  EXPECT_EQ(file->size(), 0);
}

TEST(ScratchFile, KnowsTheSpaceOfItsDiskWithoutItsFolder) {
  const TemporaryFolder parent;
  const std::filesystem::path folder = parent.path() / "drive";
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  const StatusOr<ScratchFile> file = ScratchFile::Create(folder, FileSystem::System());
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE(std::filesystem::remove(folder)) << "it is empty";
  EXPECT_THAT(file->DescribeError(EIO, "reading").message(),
              AllOf(HasSubstr(folder.string()), HasSubstr("; the disk has "), HasSubstr(" free")));
}

// As ext4 does.
class FillingFileSystem : public ScriptedFileSystem {
 public:
  FillingFileSystem() : ScriptedFileSystem([](const FileCall&) { return kAskTheSystem; }) {}
  int Allocate(int fd, off_t offset, off_t length) override {
    file = fd;
    return ::fallocate(fd, 0, offset, length / 2) == 0 ? -ENOSPC : -errno;
  }
  int file = -1;
};

TEST(ScratchFile, ReleasesPartialSpaceOnAFullDisk) {
  const TemporaryFolder folder;
  FillingFileSystem system;
  StatusOr<ScratchFile> file = ScratchFile::Create(folder.path(), system);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->Grow(1 << 20).code(), StatusCode::kResourceExhausted);
  struct stat after = {};
  ASSERT_EQ(::fstat(system.file, &after), 0);
  EXPECT_EQ(after.st_size, 0);
  EXPECT_EQ(after.st_blocks, 0);
}

TEST(ScratchFile, GrowsWithoutPreallocation) {
  const TemporaryFolder folder;
  ScriptedFileSystem system([](const FileCall& call) {
    return call.kind == FileCall::Kind::kAllocate ? EOPNOTSUPP : kAskTheSystem;
  });
  StatusOr<ScratchFile> file = ScratchFile::Create(folder.path(), system);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->Grow(8192).ok());
  EXPECT_EQ(file->size(), 8192);
}

}  // namespace
}  // namespace ds::offload
