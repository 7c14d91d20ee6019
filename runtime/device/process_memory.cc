#include "runtime/device/process_memory.h"

#include <sstream>
#include <string>

#include "runtime/base/files.h"

namespace ds::device {

StatusOr<ProcessMemory> ReadProcessMemory() {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/self/status"));
  ProcessMemory memory;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string key;
    std::int64_t kibibytes = 0;
    if (!(fields >> key >> kibibytes)) continue;
    if (key == "VmRSS:") memory.resident_bytes = kibibytes * 1024;
    if (key == "VmHWM:") memory.peak_resident_bytes = kibibytes * 1024;
    if (key == "RssShmem:") memory.shared_bytes = kibibytes * 1024;
  }
  if (memory.resident_bytes == 0) return InternalError("/proc/self/status has no VmRSS line");
  return memory;
}

}  // namespace ds::device
