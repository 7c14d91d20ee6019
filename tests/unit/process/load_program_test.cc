#include "runtime/process/load_program.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace ds {
namespace {

constexpr int kPopulate = 22;  // MADV_POPULATE_READ

// Returns the sum of a field of /proc/self/smaps, in KiB, over all mappings of a file.
long SumField(const std::string& field, const std::string& file) {
  std::ifstream mappings("/proc/self/smaps");
  long sum = 0;
  bool is_of_file = false;
  for (std::string line; std::getline(mappings, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first.back() != ':') {
      is_of_file = line.ends_with(" " + file);
    } else if (is_of_file && first == field + ":") {
      long size = 0;
      words >> size;
      sum += size;
    }
  }
  return sum;
}

TEST(LoadProgramTest, EveryPageOfTheProgramIsMapped) {
  if (::madvise(nullptr, 0, kPopulate) != 0) GTEST_SKIP() << "Linux before 5.14";
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  LoadProgram();
  const long size = SumField("Size", program);
  EXPECT_GT(size, 0);
  EXPECT_EQ(SumField("Rss", program), size);
}

}  // namespace
}  // namespace ds
