#include "runtime/base/glob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace ds {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class GlobTest : public ::testing::Test {
 protected:
  GlobTest() {
    std::string name = (std::filesystem::temp_directory_path() / "dsrun-glob.XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    for (const char* file : {"b.txt", "a.txt", "a.bin", ".hidden.txt"})
      std::ofstream(folder_ / file);
  }
  ~GlobTest() override { std::filesystem::remove_all(folder_); }
  std::vector<std::string> Names(const std::string& pattern) const {
    std::vector<std::string> names;
    for (const auto& path : ExpandGlob((folder_ / pattern).string())) {
      names.push_back(path.filename().string());
    }
    return names;
  }
  std::filesystem::path folder_;
};

TEST_F(GlobTest, ListsMatchesInOrder) {
  EXPECT_THAT(Names("*.txt"), ElementsAre("a.txt", "b.txt"));
  EXPECT_THAT(Names("[ab].???"), ElementsAre("a.bin", "a.txt", "b.txt"));
  EXPECT_THAT(Names(".*.txt"), ElementsAre(".hidden.txt"));
  EXPECT_THAT(Names("*.jsonl"), IsEmpty());
}

TEST_F(GlobTest, APlainPathIsNoPattern) {
  EXPECT_FALSE(IsGlob("data/a.txt"));
  EXPECT_TRUE(IsGlob("data/*.txt"));
  EXPECT_THAT(Names("a.txt"), IsEmpty());
}

}  // namespace
}  // namespace ds
