#include "runtime/process/thread_room.h"

#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace ds {

Status NoRoomError(const std::string& what) {
  return ResourceExhaustedError(what +
                                "; see the limits of processes where it runs: ulimit -u, pids.max "
                                "of its control group");
}

Status CheckThreadRoom(int count) {
  std::latch done(1);
  std::vector<std::jthread> threads;
  threads.reserve(count);
  Status status;
  try {
    while (static_cast<int>(threads.size()) < count) {
      threads.emplace_back([&done] { done.wait(); });
    }
  } catch (const std::system_error& error) {
    status = NoRoomError(std::to_string(count) + " threads are needed and " +
                         std::to_string(threads.size()) + " may be started (" +
                         error.code().message() + ")");
  }
  done.count_down();
  return status;  // behind the ends of the threads
}

}  // namespace ds
