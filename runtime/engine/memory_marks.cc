#include "runtime/engine/memory_marks.h"

#include <cstdio>
#include <optional>
#include <string>

#include "runtime/base/byte_size.h"
#include "runtime/engine/report/step_metrics.h"

namespace ds::engine {
namespace {

using nlohmann::ordered_json;

std::string Size(const ordered_json& bytes) { return ByteSize(bytes.get<std::uint64_t>()); }

// Converts {"parameters":{"host":{"bytes":1,"peak":2}}} to {"parameters":{"host":1}}: peaks are
// over the full run.
ordered_json TakeBytes(const ordered_json& ledger) {
  ordered_json bytes = ordered_json::object();
  for (const auto& [use, tiers] : ledger.items()) {
    for (const auto& [tier, held] : tiers.items()) bytes[use][tier] = held["bytes"];
  }
  return bytes;
}

std::string Describe(std::string_view phase, const ordered_json& held) {
  std::string text = "memory after the " + std::string(phase) + ":";
  for (const auto& [name, value] : held.items()) {
    if (name == "tensors") {
      text += " tensors " + Size(value["bytes"]) + " (at most " + Size(value["peak"]) + "),";
    } else if (value.is_object()) {
      for (const auto& [tier, bytes] : value.items()) {
        text += " " + name + " " + Size(bytes) + (tier == "host" ? "," : " (" + tier + "),");
      }
    } else {
      text += " " + name.substr(0, name.find("_bytes")) + " " + Size(value) + ",";
    }
  }
  text.pop_back();
  return text;
}

}  // namespace

void MemoryMarks::Mark(std::string_view phase) {
  std::optional<device::ActivationMeter::Reading> reading;
  if (options_.meter != nullptr) reading = options_.meter->Mark();
  if (!options_.breakdown) return;
  ordered_json held = TakeBytes(options_.ledger->ToJson());
  if (reading) {
    held["tensors"] = {{"bytes", reading->allocated.bytes}, {"peak", reading->allocated.peak}};
  }
  held.update(telemetry::ReadProcessMemory());
  if (options_.prints) {
    std::printf("%s\n", Describe(phase, held).c_str());
    std::fflush(stdout);
  }
  breakdown_[std::string(phase)] = std::move(held);
}

}  // namespace ds::engine
