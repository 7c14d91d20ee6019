#include "runtime/process/descriptor_table.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/base/unique_fd.h"

namespace ds {

void FillStandardDescriptors() {
  int fd = -1;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

rlimit RaiseOpenFilesLimit() {
  static const rlimit found = [] {
    rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
    ::getrlimit(RLIMIT_NOFILE, &limit);  // fails only for an unknown limit
    const rlimit raised{limit.rlim_max, limit.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &raised);  // allowed to everybody; else the limit stays as it is
    return limit;
  }();
  return found;
}

void ReserveDescriptors(int count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const int last = static_cast<int>(std::min<rlim_t>(count, limit.rlim_cur)) - 1;
  const UniqueFd some(::open("/", O_PATH | O_CLOEXEC));
  // A table keeps the capacity for the largest number it ever held.
  const UniqueFd highest(::fcntl(some.get(), F_DUPFD_CLOEXEC, last));
}

}  // namespace ds
