#pragma once

// Finds the shared libraries that an ELF program needs and that are missing. It reads the file
// instead of starting it, because starting a LibTorch program takes 0.2 s.
//
// Checks only the program's own DT_NEEDED entries that begin with one of `prefixes`. Searches its
// DT_RPATH or DT_RUNPATH ($ORIGIN replaced) and `library_path` (LD_LIBRARY_PATH). Other libraries
// and the system's folders are left to the dynamic linker.
//
// The file is untrusted input: every offset is checked against its size.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::daemon {

// Returns the names of the missing libraries. Returns kInvalidArgument if `program` is not a 64-bit
// ELF file of this machine's byte order. Read errors keep their code.
StatusOr<std::vector<std::string>> FindMissingLibraries(const std::filesystem::path& program,
                                                        std::span<const std::string_view> prefixes,
                                                        std::string_view library_path);

}  // namespace ds::daemon
