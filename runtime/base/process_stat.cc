#include "runtime/base/process_stat.h"

#include <fstream>
#include <sstream>
#include <string>

namespace ds {

std::optional<ProcessStat> ReadProcessStat(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text, '\0');  // the process may end meanwhile: an iterator would throw
  // The text is "PID (NAME) STATE PARENT ..."; NAME may contain any byte.
  const std::size_t name_begin = text.find('('), name_end = text.rfind(')');
  if (name_begin == std::string::npos || name_end == std::string::npos) return std::nullopt;
  ProcessStat stat;
  stat.name = text.substr(name_begin + 1, name_end - name_begin - 1);
  std::istringstream fields(text.substr(name_end + 1));
  fields >> stat.state >> stat.parent;
  std::string skipped;
  for (int field = 5; field < 14; ++field) fields >> skipped;
  std::uint64_t user = 0, system = 0;
  fields >> user >> system;
  stat.processor_ticks = user + system;
  for (int field = 16; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  if (!fields) return std::nullopt;
  return stat;
}

bool IsStopped(pid_t pid) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  return stat.has_value() && stat->state == 'T';
}

}  // namespace ds
