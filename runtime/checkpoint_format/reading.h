#pragma once

// Reads of a checkpoint's files with three outcomes: good, proven bad, unknown.
//
// An errno proves that a file is missing or of another kind only when it is one of a short list
// (ENOENT, ENOTDIR, ...). Any other one (EAGAIN, EIO, ESTALE, ETIMEDOUT, EACCES, EMFILE, ENOMEM)
// says nothing about the file: it is kUnavailable, and the caller tries again or gives up. It never
// takes the file for damaged or missing.
//
// Threads: all functions are safe to call concurrently.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"

namespace ds::checkpoint {

// True for an errno of open(2) or stat(2) that proves that there is no such regular file.
bool ProvesAbsence(int error_number);

// "`what`: Stale file handle". kUnavailable unless the errno proves something.
Status ReadError(int error_number, std::string_view what);

// The whole file. kNotFound when it is missing, kDataLoss when it is no regular file or larger than
// `max_bytes`, kUnavailable when it cannot be read now.
StatusOr<std::string> ReadText(const std::filesystem::path& path, std::uint64_t max_bytes,
                               FileSystem& system);

// False when there is nothing of that name; kUnavailable when it cannot be looked at now.
StatusOr<bool> Exists(const std::filesystem::path& path);

}  // namespace ds::checkpoint
