#include <algorithm>
#include <cctype>
#include <system_error>

#include "cli/report/read_host.h"
#include "cli/report/text_file.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

// Returns the names in a folder, sorted; none if it cannot be read.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); entry != fs::directory_iterator();
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Reads "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ...": the version
// is the first word that begins with a digit and has a dot.
std::string DriverVersion(const fs::path& root) {
  for (const std::string& word :
       SplitAtBlanks(FindValue(ReadLines(root / "proc/driver/nvidia/version"), "NVRM version"))) {
    const bool number = std::isdigit(static_cast<unsigned char>(word.front())) != 0;
    if (number && word.find('.') != std::string::npos) return word;
  }
  return "";
}

}  // namespace

void ReadGpus(const fs::path& root, HostFacts* facts) {
  const fs::path gpus = root / "proc/driver/nvidia/gpus";
  for (const std::string& bus_address : NamesIn(gpus)) {
    const std::string model = FindValue(ReadLines(gpus / bus_address / "information"), "Model");
    facts->gpus.push_back(model.empty() ? bus_address : model);
  }
  facts->gpu_driver = DriverVersion(root);
}

void ReadNetwork(const fs::path& root, HostFacts* facts) {
  constexpr std::string_view kLoopbackType = "772";  // ARPHRD_LOOPBACK
  const fs::path interfaces = root / "sys/class/net";
  for (const std::string& name : NamesIn(interfaces)) {
    const std::string type = ReadText(interfaces / name / "type");
    if (type.empty() || type == kLoopbackType) continue;
    // An interface that is down or virtual has no speed: the file is unreadable or contains -1.
    facts->interfaces.push_back(
        {.name = name,
         .up = ReadText(interfaces / name / "operstate") == "up",
         .megabits_per_second = ParseLeadingNumber(ReadText(interfaces / name / "speed"))});
  }
  facts->infiniband_devices = static_cast<int>(NamesIn(root / "sys/class/infiniband").size());
}

}  // namespace ds::cli
