#pragma once

// Pipe holds both ends of a pipe, close-on-exec. They block unless `flags` contains O_NONBLOCK.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

inline StatusOr<Pipe> MakePipe(int flags = 0) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | flags) != 0) return ErrnoError(errno, "pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace ds
