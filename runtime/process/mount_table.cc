#include "runtime/process/mount_table.h"

#include <sstream>
#include <utility>

namespace ds {
namespace {

bool IsOctal(std::string_view digits) {
  return digits.find_first_not_of("01234567") == std::string_view::npos;
}

// Replaces the kernel's escapes: a blank, tab, newline and backslash are '\' and three digits.
std::string Unescape(std::string_view path) {
  std::string text;
  while (!path.empty()) {
    if (path[0] == '\\' && path.size() > 3 && IsOctal(path.substr(1, 3))) {
      text += static_cast<char>((path[1] - '0') * 64 + (path[2] - '0') * 8 + (path[3] - '0'));
      path.remove_prefix(4);
    } else {
      text += path[0];
      path.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace

std::vector<Mount> ParseMountTable(std::string_view text) {
  std::vector<Mount> mounts;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    // "36 35 98:0 /root /mount/point options [tags] - type source options"
    const std::size_t separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    std::istringstream front(line.substr(0, separator)), back(line.substr(separator + 3));
    std::string id, parent, device, source;
    Mount mount;
    if (!(front >> id >> parent >> device >> mount.root >> mount.point)) continue;
    if (!(back >> mount.type)) continue;
    back >> source >> mount.options;
    mount.root = Unescape(mount.root);
    mount.point = Unescape(mount.point);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

}  // namespace ds
