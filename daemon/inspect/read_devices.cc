#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <system_error>

#include "daemon/inspect/read_host.h"
#include "daemon/inspect/text_file.h"

namespace ds::daemon {
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

std::string AddressText(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
  } else if (address.sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) return "";
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  }
  return text.data();
}

}  // namespace

void ReadGpus(const fs::path& root, v1::HostFacts* facts) {
  const fs::path gpus = root / "proc/driver/nvidia/gpus";
  for (const std::string& bus_address : NamesIn(gpus)) {
    const std::string model = FindValue(ReadLines(gpus / bus_address / "information"), "Model");
    facts->add_driver_gpus()->set_model(model.empty() ? bus_address : model);
  }
  facts->set_gpu_driver(DriverVersion(root));
}

void ReadNetwork(const fs::path& root, v1::HostFacts* facts) {
  constexpr std::string_view kLoopbackType = "772";  // ARPHRD_LOOPBACK
  const fs::path interfaces = root / "sys/class/net";
  for (const std::string& name : NamesIn(interfaces)) {
    const std::string type = ReadText(interfaces / name / "type");
    if (type.empty() || type == kLoopbackType) continue;
    v1::InterfaceFacts* interface = facts->add_interfaces();
    interface->set_name(name);
    interface->set_up(ReadText(interfaces / name / "operstate") == "up");
    // An interface that is down or virtual has no speed: the file is unreadable or contains -1.
    const auto speed = ParseLeadingNumber(ReadText(interfaces / name / "speed"));
    if (speed) interface->set_megabits_per_second(*speed);
  }
  facts->set_infiniband_devices(
      static_cast<std::uint32_t>(NamesIn(root / "sys/class/infiniband").size()));
}

void ReadAddresses(v1::HostFacts* facts) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    const std::string text = each->ifa_addr == nullptr ? "" : AddressText(*each->ifa_addr);
    if (text.empty()) continue;
    for (v1::InterfaceFacts& interface : *facts->mutable_interfaces()) {
      if (interface.name() == each->ifa_name) interface.add_addresses(text);
    }
  }
}

}  // namespace ds::daemon
