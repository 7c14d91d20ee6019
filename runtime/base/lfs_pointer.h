#pragma once

// Git LFS pointers: a checkout without LFS has a text of some 130 bytes in place of each large
// file. https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
//
// Threads: all functions are safe to call concurrently.

#include <cstddef>
#include <string_view>

#include "runtime/base/status.h"

namespace ds {

// The first line of every pointer.
inline constexpr std::string_view kLfsPointerStart = "version https://git-lfs.github.com/spec/v";

// True for a pointer. The first bytes of a file, kLfsPointerStart.size() or more, are enough.
bool IsLfsPointer(std::string_view bytes);

// OK unless the bytes at the start of a file are a pointer's. ReadFile refuses one, too. The error
// says what to run and does not name the file.
Status CheckNoLfsPointer(std::string_view bytes);

}  // namespace ds
