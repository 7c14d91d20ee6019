#include "daemon/inspect/needed_libraries.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <random>
#include <string>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::daemon {
namespace {

constexpr std::array<std::string_view, 1> kLibc = {"libc.so"};

// Where the dynamic linker has found the C library that this test runs with.
std::string LibraryFolder() {
  std::ifstream maps("/proc/self/maps");
  std::string word;
  while (maps >> word) {
    if (word.ends_with("/libc.so.6")) return std::filesystem::path(word).parent_path().string();
  }
  return "";
}

TEST(NeededLibrariesTest, NamesLibrariesMissingInTheFolders) {
  const auto self = FindOwnExecutable().value();
  const auto missing = FindMissingLibraries(self, kLibc, "/no/such/folder");
  ASSERT_TRUE(missing.ok()) << missing.status().message();
  EXPECT_EQ(*missing, std::vector<std::string>({"libc.so.6"}));
  EXPECT_EQ(FindMissingLibraries(self, kLibc, "/no:" + LibraryFolder())->size(), 0U);
}

TEST(NeededLibrariesTest, OnlyTheNamesAskedForCount) {
  constexpr std::array<std::string_view, 1> kOther = {"libtorch"};
  EXPECT_EQ(FindMissingLibraries(FindOwnExecutable().value(), kOther, "")->size(), 0U);
}

TEST(NeededLibrariesTest, RefusesOtherFilesThanPrograms) {
  EXPECT_EQ(FindMissingLibraries("/proc/self/cmdline", kLibc, "").ok(), false);
  EXPECT_EQ(FindMissingLibraries("/no/such/file", kLibc, "").status().code(),
            StatusCode::kNotFound);
  const ds::testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "text") << "#!/bin/sh\n";
  EXPECT_EQ(FindMissingLibraries(folder.path() / "text", kLibc, "").status().code(),
            StatusCode::kInvalidArgument);
}

// Damaged programs are read without going astray; a sanitizer build is what would notice.
TEST(NeededLibrariesTest, DamagedProgramsDoNoHarm) {
  const ds::testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "program").string();
  const std::string whole = ReadFile("/bin/true").value();
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string damaged = whole.substr(0, 64 + random() % (whole.size() - 64));
    for (int i = 0; i < 20; ++i) {
      damaged[16 + random() % std::min<std::size_t>(damaged.size() - 16, 1024)] =
          static_cast<char>(random());
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    static_cast<void>(FindMissingLibraries(path, kLibc, ""));
  }
  SUCCEED();
}

}  // namespace
}  // namespace ds::daemon
