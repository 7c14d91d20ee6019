#include "daemon/host/owner_mark.h"

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>

namespace ds::daemon {
namespace {

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// When the process was started, in ticks since the boot; 0 when it does not live. One that nobody
// has reaped yet does not.
std::uint64_t StartOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  // "PID (NAME) STATE ..."; the name may hold anything. The start is the 22nd word.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(stat.substr(name_end + 1));
  std::string word;
  rest >> word;
  if (word == "Z" || word == "X") return 0;
  constexpr int kWordsBetween = 18;
  for (int i = 0; i < kWordsBetween; ++i) rest >> word;
  std::uint64_t start = 0;
  rest >> start;
  return start;
}

}  // namespace

std::string OwnMark() {
  const std::string boot = BootId();
  const std::uint64_t start = StartOf(::getpid());
  if (boot.empty() || start == 0) return "";
  return boot + " " + std::to_string(::getpid()) + " " + std::to_string(start);
}

bool OwnerIsGone(std::string_view mark) {
  std::istringstream words{std::string(mark)};
  std::string boot, behind;
  pid_t pid = 0;
  std::uint64_t start = 0;
  if (!(words >> boot >> pid >> start) || words >> behind || pid <= 0 || start == 0) return false;
  return boot == BootId() && StartOf(pid) != start;
}

}  // namespace ds::daemon
