#pragma once

// Finds the shared libraries that an ELF program asks for by name and cannot have, by reading it
// instead of starting it (starting a LibTorch program takes 0.2 s).
//
// Looks at the program's own DT_NEEDED entries that begin with one of `prefixes`, in its
// DT_RPATH or DT_RUNPATH ($ORIGIN replaced) and in `library_path` (LD_LIBRARY_PATH). Other
// libraries and the system's folders are the dynamic linker's business.
//
// The file is outside input: every offset is checked against its size.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::daemon {

// The names of the missing ones. kInvalidArgument when `program` is not a 64-bit ELF file of this
// machine's byte order; errors of reading keep their code.
StatusOr<std::vector<std::string>> FindMissingLibraries(const std::filesystem::path& program,
                                                        std::span<const std::string_view> prefixes,
                                                        std::string_view library_path);

}  // namespace ds::daemon
