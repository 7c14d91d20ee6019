#pragma once

// Functions that read checkpoint files with three outcomes: good, proven bad, unknown.
//
// Only a short list of errnos (ENOENT, ENOTDIR, ...) proves that a file is missing or of another
// kind. Any other errno (EAGAIN, EIO, ESTALE, ETIMEDOUT, EACCES, EMFILE, ENOMEM) proves nothing and
// becomes kUnavailable. The caller then retries or gives up; it never treats the file as damaged or
// missing.
//
// Thread-safe.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"

namespace ds::checkpoint {

// Returns true for an errno of open(2) or stat(2) that proves that no such regular file exists.
bool ProvesAbsence(int error_number);

// Returns "`what`: Stale file handle". The code is kUnavailable unless the errno proves absence.
Status ReadError(int error_number, std::string_view what);

// Returns the content of the file. Fails with kNotFound when it is missing, kDataLoss when it is
// not a regular file or larger than `max_bytes`, and kUnavailable when it cannot be read now.
StatusOr<std::string> ReadText(const std::filesystem::path& path, std::uint64_t max_bytes,
                               FileSystem& system);

// Returns false when `path` does not exist. Fails with kUnavailable when that is unknown now.
StatusOr<bool> Exists(const std::filesystem::path& path);

}  // namespace ds::checkpoint
