#include "runtime/process/descriptor_table.h"

#include <fcntl.h>
#include <sys/resource.h>
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

void ReserveDescriptors(int count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const int last = static_cast<int>(std::min<rlim_t>(count, limit.rlim_cur)) - 1;
  const UniqueFd some(::open("/", O_PATH | O_CLOEXEC));
  // A table keeps the capacity for the largest number it ever held.
  const UniqueFd highest(::fcntl(some.get(), F_DUPFD_CLOEXEC, last));
}

}  // namespace ds
