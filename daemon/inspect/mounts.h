#pragma once

// The file system that holds a path, by the kernel's table of mounts. Unlike statfs, that does not
// ask the file system, which may not answer.
//
// Thread-safe.

#include <string>
#include <string_view>

namespace ds::daemon {

// Returns the type of the file system at the absolute path `path`, for example "nfs4"; "" if it
// cannot be found. `mounts` has the format of /proc/self/mountinfo. Links in `path` are not
// followed. Pure.
std::string FindFileSystemType(std::string_view path, std::string_view mounts);

// Looks in this process's own table.
std::string FindFileSystemType(std::string_view path);

// Returns "PATH on TYPE", or the path alone if its type cannot be found.
std::string WithFileSystem(const std::string& path);

}  // namespace ds::daemon
