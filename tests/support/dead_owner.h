#pragma once

// A process that has ended, and the mark that it has made (runtime/base/owner_mark.h).

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "runtime/base/owner_mark.h"

namespace ds::testing {

struct Dead {
  pid_t pid = 0;
  std::string mark;
};

// A zombie until the caller waits for it.
inline Dead MakeDead() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return {};
  Dead dead{.pid = ::fork()};
  if (dead.pid == 0) {
    const std::string mark = MakeOwnMark();
    ::_exit(::write(ends[1], mark.data(), mark.size()) > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  std::array<char, 256> buffer{};
  const ssize_t size = ::read(ends[0], buffer.data(), buffer.size());
  ::close(ends[0]);
  if (size > 0) dead.mark.assign(buffer.data(), static_cast<std::size_t>(size));
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(dead.pid), &info, WEXITED | WNOWAIT);
  return dead;
}

inline std::string MarkOfTheDead() {
  const Dead dead = MakeDead();
  ::waitpid(dead.pid, nullptr, 0);
  return dead.mark;
}

}  // namespace ds::testing
