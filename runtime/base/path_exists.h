#pragma once

// PathExists distinguishes a missing file or folder from one that cannot be accessed.
//
// Thread-safe.

#include <filesystem>
#include <system_error>

#include "runtime/base/files.h"
#include "runtime/base/status.h"

namespace ds {

// Returns false when nothing exists at `path`, or a link to nothing. Any other failure (a
// permission, a loop of links) is an error that names the path.
inline StatusOr<bool> PathExists(const std::filesystem::path& path) {
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (error) return ErrnoError(error.value(), ShortenPath(path));
  return exists;
}

}  // namespace ds
