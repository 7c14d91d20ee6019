// Feeds arbitrary bytes to ParseHostfile. What it accepts is bounded, unique, and means the same
// when it is written out and read again.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "cli/launch/hostfile.h"
#include "runtime/base/check.h"

namespace {

std::string Write(const std::vector<ds::cli::HostEntry>& entries) {
  std::string text =
      "#\n";  // a byte-order mark is none behind this, but part of the name it starts
  for (const ds::cli::HostEntry& entry : entries) {
    text += entry.name + " slots=" + std::to_string(entry.slots);
    for (const auto& [key, value] : entry.keys) {
      const char* quote = value.find('"') == std::string::npos ? "\"" : "";
      text += " " + key + (key == "spare" ? "" : "=" + (quote + value) + quote);
    }
    text += "\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto entries = ds::cli::ParseHostfile(text, "hostfile");
  if (!entries.ok()) {
    DS_CHECK(entries.status().message().starts_with("hostfile"));
    return 0;
  }
  std::set<std::string> names;
  for (const ds::cli::HostEntry& entry : *entries) {
    DS_CHECK(entry.slots >= 0 && entry.slots <= ds::cli::kMaxSlotsPerHost);
    DS_CHECK(!entry.name.empty() && names.insert(entry.name).second);
  }
  const auto again = ds::cli::ParseHostfile(Write(*entries), "hostfile");
  DS_CHECK_MSG(again.ok(), again.status().message());
  DS_CHECK(again->size() == entries->size());
  for (std::size_t i = 0; i < entries->size(); ++i) {
    DS_CHECK((*again)[i].name == (*entries)[i].name && (*again)[i].keys == (*entries)[i].keys);
  }
  return 0;
}
