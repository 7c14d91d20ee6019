#include "daemon/inspect/mounts.h"

#include "runtime/base/files.h"
#include "runtime/base/status.h"
#include "runtime/process/mount_table.h"

namespace ds::daemon {
namespace {

bool Holds(std::string_view folder, std::string_view path) {
  if (folder == "/") return path.starts_with('/');
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

std::string FindFileSystemType(std::string_view path, std::string_view mounts) {
  std::string type;
  std::size_t longest = 0;
  for (const Mount& mount : ParseMountTable(mounts)) {
    if (mount.point.size() < longest || !Holds(mount.point, path)) continue;
    type = mount.type;
    longest = mount.point.size();
  }
  return type;
}

std::string FindFileSystemType(std::string_view path) {
  const StatusOr<std::string> mounts = ReadFile("/proc/self/mountinfo");
  return mounts.ok() ? FindFileSystemType(path, *mounts) : "";
}

std::string WithFileSystem(const std::string& path) {
  const std::string type = FindFileSystemType(path);
  return type.empty() ? path : path + " on " + type;
}

}  // namespace ds::daemon
