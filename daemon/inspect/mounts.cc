#include "daemon/inspect/mounts.h"

#include <sstream>

#include "runtime/base/files.h"
#include "runtime/base/status.h"

namespace ds::daemon {
namespace {

// The table writes a space, tab, newline and backslash as '\' and three octal digits.
std::string Unescape(std::string_view field) {
  std::string text;
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] != '\\' || i + 3 >= field.size()) {
      text += field[i];
      continue;
    }
    int code = 0;
    for (int digit = 0; digit < 3; ++digit) code = 8 * code + (field[++i] - '0');
    text += static_cast<char>(code);
  }
  return text;
}

bool Holds(std::string_view folder, std::string_view path) {
  if (folder == "/") return path.starts_with('/');
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

std::string FindFileSystemType(std::string_view path, std::string_view mounts) {
  std::string type;
  std::size_t longest = 0;
  std::istringstream lines{std::string(mounts)};
  for (std::string line; std::getline(lines, line);) {
    // "36 35 98:0 /root /mount/point options [tags] - type source options"
    std::istringstream fields(line);
    std::string word, mount_point;
    for (int i = 0; i < 4; ++i) fields >> word;
    fields >> mount_point;
    mount_point = Unescape(mount_point);
    // A later mount hides an earlier one at the same place.
    if (mount_point.size() < longest || !Holds(mount_point, path)) continue;
    while (fields >> word && word != "-") {
    }
    if (!(fields >> word)) continue;
    type = word;
    longest = mount_point.size();
  }
  return type;
}

std::string FindFileSystemType(std::string_view path) {
  const StatusOr<std::string> mounts = ReadFile("/proc/self/mountinfo");
  return mounts.ok() ? FindFileSystemType(path, *mounts) : "";
}

}  // namespace ds::daemon
