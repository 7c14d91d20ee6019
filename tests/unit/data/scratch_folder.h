#pragma once

// A temporary folder with files that a test writes.

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace ds::data {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "dsrun-data.XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }

  // Writes `content` to the file `name` inside and returns its path.
  std::string Write(const std::string& name, std::string_view content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(content.data(), std::ssize(content));
    return file.string();
  }

  // Writes the ids as little-endian values of type Id.
  template <typename Id>
  std::string WriteTokens(const std::string& name, const std::vector<Id>& ids) const {
    return Write(name, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id)});
  }

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace ds::data
