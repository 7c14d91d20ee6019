#pragma once

// PathExists: tells a file or folder that is not there from one that cannot be looked at.
//
// Threads: safe to call concurrently.

#include <filesystem>
#include <system_error>

#include "runtime/base/files.h"
#include "runtime/base/status.h"

namespace ds {

// False where there is nothing, or a link to nothing. The error about another reason (a permission,
// a loop of links) names the path.
inline StatusOr<bool> PathExists(const std::filesystem::path& path) {
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (error) return ErrnoError(error.value(), ShortenPath(path));
  return exists;
}

}  // namespace ds
