#include "runtime/base/glob.h"

#include <glob.h>

namespace ds {

bool IsGlob(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

std::vector<std::filesystem::path> ExpandGlob(const std::string& pattern) {
  std::vector<std::filesystem::path> paths;
  if (!IsGlob(pattern)) return paths;
  glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  return paths;
}

}  // namespace ds
