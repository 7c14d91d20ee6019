#include "runtime/base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

namespace ds {
namespace {
namespace fs = std::filesystem;

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "dsrun-files-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(FilesTest, NumberedEntriesAreCounted) {
  for (const char* name :
       {"nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia1x", "nvidia", "1"}) {
    ASSERT_TRUE(fs::create_directory(folder_ / name));
  }
  EXPECT_EQ(CountNumbered(folder_, "nvidia"), 2);
  EXPECT_EQ(CountNumbered(folder_ / "gone", "nvidia"), 0);
}

TEST_F(FilesTest, AFolderThatCannotBeReachedIsNotTakenForAFile) {
  fs::create_symlink("loop", folder_ / "loop");  // to itself
  EXPECT_EQ(MakeDirectories(folder_ / "loop").message(),
            (folder_ / "loop").string() + ": Too many levels of symbolic links");
  ASSERT_TRUE(WriteFileAtomically(folder_ / "file", "x").ok());
  EXPECT_EQ(MakeDirectories(folder_ / "file").message(),
            (folder_ / "file").string() + ": Not a directory");
}

TEST_F(FilesTest, AtomicWriteReplacesAndLeavesNothingElse) {
  const fs::path path = folder_ / "latest";
  ASSERT_TRUE(WriteFileAtomically(path, "one").ok());
  ASSERT_TRUE(WriteFileAtomically(path, "two").ok());
  EXPECT_EQ(*ReadFile(path), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(FilesTest, FailedWriteKeepsTheOldFile) {
  const fs::path path = folder_ / "file";
  fs::create_directory(path);  // a rename onto a folder fails
  EXPECT_FALSE(WriteFileAtomically(path, "x").ok());
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

// Whoever shares a terminal or a pipe with us may make it non-blocking.
TEST_F(FilesTest, ANonBlockingDescriptorGetsEverything) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const std::string text(1 << 20, 'x');
  std::size_t got = 0;
  std::thread reader([&] {
    char buffer[1000];
    pollfd readable{reading.get(), POLLIN, 0};
    while (::poll(&readable, 1, -1) == 1) {
      const ssize_t size = ::read(reading.get(), buffer, sizeof(buffer));
      if (size <= 0) break;
      got += static_cast<std::size_t>(size);
    }
  });
  EXPECT_TRUE(WriteAll(writing.get(), text, "pipe").ok());
  writing.Reset();
  reader.join();
  EXPECT_EQ(got, text.size());
}

TEST_F(FilesTest, ANonBlockingDescriptorWithoutReaderIsAnError) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd writing(ends[1]);
  ::close(ends[0]);
  EXPECT_FALSE(WriteAll(writing.get(), "x", "pipe").ok());
}

TEST_F(FilesTest, FullDiskIsResourceExhausted) {
  EXPECT_EQ(AppendFile::Open("/dev/full")->Append("x").code(), StatusCode::kResourceExhausted);
}

TEST_F(FilesTest, ReadRefusesMissingFoldersAndTooMuch) {
  EXPECT_EQ(ReadFile(folder_ / "no").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(ReadFile(folder_).ok());
  ASSERT_TRUE(WriteFileAtomically(folder_ / "big", std::string(100, 'x')).ok());
  EXPECT_EQ(ReadFile(folder_ / "big", 99).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(FilesTest, ReadRefusesASparseFileLargerThanMemory) {
  const fs::path path = folder_ / "sparse";
  ASSERT_TRUE(WriteFileAtomically(path, "").ok());
  fs::resize_file(path, std::uintmax_t{1} << 42);
  EXPECT_EQ(ReadFile(path).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(FilesTest, RenameRefusesAnExistingName) {
  fs::create_directory(folder_ / "step-1.tmp");
  ASSERT_TRUE(RenameDurably(folder_ / "step-1.tmp", folder_ / "step-1").ok());
  fs::create_directory(folder_ / "step-1.tmp");
  EXPECT_EQ(RenameDurably(folder_ / "step-1.tmp", folder_ / "step-1").code(),
            StatusCode::kAlreadyExists);
}

// NFS, CephFS, GlusterFS and most of FUSE's file systems.
class WithoutRenameFlags : public FileSystem {
  int Rename(const fs::path& from, const fs::path& to, unsigned flags) override {
    return flags != 0 ? -EINVAL : FileSystem::Rename(from, to, flags);
  }
};

TEST_F(FilesTest, RenameWithoutFlagsRefusesANameThatIsTaken) {
  WithoutRenameFlags nfs;
  fs::create_directory(folder_ / "step-1.tmp");
  EXPECT_TRUE(RenameDurably(folder_ / "step-1.tmp", folder_ / "step-1", nfs).ok());
  ASSERT_TRUE(WriteFileAtomically(folder_ / "step-1/file", "old").ok());
  fs::create_directory(folder_ / "step-1.tmp");
  EXPECT_EQ(RenameDurably(folder_ / "step-1.tmp", folder_ / "step-1", nfs).code(),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(*ReadFile(folder_ / "step-1/file"), "old");
}

TEST_F(FilesTest, ATreeIsRemovedAndALinkInItIsNotFollowed) {
  fs::create_directories(folder_ / "tree/deep/er");
  ASSERT_TRUE(WriteFileAtomically(folder_ / "tree/deep/file", "x").ok());
  ASSERT_TRUE(WriteFileAtomically(folder_ / "kept", "x").ok());
  fs::create_symlink(folder_ / "kept", folder_ / "tree/link");
  fs::create_directory_symlink(folder_, folder_ / "tree/up");
  EXPECT_TRUE(RemoveTree(folder_ / "tree").ok());
  EXPECT_FALSE(fs::exists(folder_ / "tree"));
  EXPECT_TRUE(fs::exists(folder_ / "kept"));
  EXPECT_TRUE(RemoveTree(folder_ / "tree").ok()) << "what is not there is removed";
}

TEST_F(FilesTest, AppendKeepsExistingContents) {
  const fs::path path = folder_ / "events.jsonl";
  ASSERT_TRUE(AppendFile::Open(path)->Append("a\n").ok());
  ASSERT_TRUE(AppendFile::Open(path)->Append("b\n").ok());
  EXPECT_EQ(*ReadFile(path), "a\nb\n");
}

TEST(ShortenPathTest, IsShortBelowTheWorkingDirectoryOnly) {
  const fs::path here = fs::current_path();
  EXPECT_EQ(ShortenPath(here / "runs" / "a"), "runs/a");
  EXPECT_EQ(ShortenPath(here), here.string());
  EXPECT_EQ(ShortenPath(here.string() + "-other/a"), here.string() + "-other/a");
  EXPECT_EQ(ShortenPath("runs/a"), "runs/a");
}

}  // namespace
}  // namespace ds
