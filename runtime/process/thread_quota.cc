#include "runtime/process/thread_quota.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace ds {

Status OutOfResourcesError(const std::string& what) {
  return ResourceExhaustedError(what +
                                "; see the limits of processes where it runs: ulimit -u, pids.max "
                                "of its control group");
}

Status CheckThreadQuota(int count) {
  std::latch done(1);
  std::vector<std::thread> threads;
  std::vector<pid_t> numbers(count, 0);
  threads.reserve(count);
  Status status;
  try {
    while (static_cast<int>(threads.size()) < count) {
      threads.emplace_back([&done, number = &numbers[threads.size()]] {
        *number = ::gettid();
        done.wait();
      });
    }
  } catch (const std::system_error& error) {
    status = OutOfResourcesError(std::to_string(count) + " threads are needed and " +
                                 std::to_string(threads.size()) + " may be started (" +
                                 error.code().message() + ")");
  }
  done.count_down();
  for (std::thread& thread : threads) thread.join();
  // A joined thread counts against the limit until the kernel has released it, a moment later.
  for (std::size_t i = 0; i < threads.size(); ++i) {
    while (::syscall(SYS_tgkill, ::getpid(), numbers[i], 0) == 0) std::this_thread::yield();
  }
  return status;
}

}  // namespace ds
