#pragma once

// A temporary folder of data files that a test writes.

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/program.h"

namespace ds::tokenizer {

class DataFolder {
 public:
  // Writes a file and returns its path.
  std::string Write(const std::string& name, std::string_view content) const {
    const std::filesystem::path file = folder_.path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(content.data(), std::ssize(content));
    return file.string();
  }

  std::string path() const { return folder_.path().string(); }

 private:
  ds::testing::TemporaryFolder folder_;
};

}  // namespace ds::tokenizer
