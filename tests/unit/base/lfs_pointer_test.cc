#include "runtime/base/lfs_pointer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runtime/base/files.h"

namespace ds {
namespace {

// As `git clone` writes it with GIT_LFS_SKIP_SMUDGE=1, and with an extension line.
constexpr char kPointer[] =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
constexpr char kExtended[] =
    "version https://git-lfs.github.com/spec/v1\next-0-foo sha256:aaaa\noid sha256:bbbb\nsize 1\n";

TEST(LfsPointer, DetectsPointers) {
  EXPECT_TRUE(IsLfsPointer(kPointer));
  EXPECT_TRUE(IsLfsPointer(kExtended));
  EXPECT_TRUE(IsLfsPointer(std::string_view(kPointer).substr(0, kLfsPointerStart.size())));
  for (const std::string_view other :
       {"", "version", "version https://git-lfs", "versions of https://git-lfs.github.com/spec/v1",
        "{\"version\": \"https://git-lfs.github.com/spec/v1\"}"}) {
    EXPECT_FALSE(IsLfsPointer(other)) << other;
    EXPECT_TRUE(CheckNoLfsPointer(other).ok()) << other;
  }
}

TEST(LfsPointer, ReadFileRefusesOne) {
  std::string pattern = (std::filesystem::temp_directory_path() / "dsrun-lfs-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path path = std::filesystem::path(pattern) / "config.json";
  ASSERT_TRUE(WriteFileAtomically(path, kPointer).ok());
  const auto read = ReadFile(path);
  ASSERT_FALSE(read.ok());
  for (const char* part : {"config.json", "Git LFS pointer", "git lfs pull"}) {
    EXPECT_NE(read.status().message().find(part), std::string::npos) << read.status().message();
  }
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace ds
