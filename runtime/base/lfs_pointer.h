#pragma once

// Detection of Git LFS pointers. A checkout without LFS holds a text of about 130 bytes in place of
// each large file. https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
//
// Thread-safe.

#include <cstddef>
#include <string_view>

#include "runtime/base/status.h"

namespace ds {

// The first line of every pointer.
inline constexpr std::string_view kLfsPointerStart = "version https://git-lfs.github.com/spec/v";

// Returns true when `bytes` start like a pointer. The first kLfsPointerStart.size() bytes of a file
// are enough.
bool IsLfsPointer(std::string_view bytes);

// Returns an error if `bytes`, the start of a file, are a pointer. ReadFile refuses pointers, too.
// The message contains the command to run and does not name the file.
Status CheckNoLfsPointer(std::string_view bytes);

}  // namespace ds
