#pragma once

// MemoryMarks records a rank's memory at the ends of forward passes, backward passes and steps. It
// measures activations there. With memory_breakdown it records all uses, and optionally prints
// them.
//
// Not thread-safe. Referenced objects must outlive this object.

#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/device/activation_meter.h"
#include "runtime/device/memory_ledger.h"

namespace ds::engine {

struct MemoryMarkOptions {
  const device::MemoryLedger* ledger = nullptr;  // borrowed
  device::ActivationMeter* meter = nullptr;      // borrowed; null: not measured
  bool breakdown = false;                        // memory_breakdown
  bool prints = false;                           // the breakdown, to standard output
};

class MemoryMarks {
 public:
  MemoryMarks() = default;
  explicit MemoryMarks(const MemoryMarkOptions& options) : options_(options) {}

  // Call at the end of a "forward", a "backward" or a "step".
  void Mark(std::string_view phase);

  // The latest mark of each phase: {"forward":{"parameters":{"host":1},...,
  // "tensors":{"bytes":1,"peak":2},"resident_bytes":1},...}. "tensors" are the bytes that the
  // allocator of the rank's device has handed out, "peak" their maximum since the previous mark.
  // Empty without memory_breakdown.
  const nlohmann::ordered_json& breakdown() const { return breakdown_; }

 private:
  MemoryMarkOptions options_;
  nlohmann::ordered_json breakdown_ = nlohmann::ordered_json::object();
};

}  // namespace ds::engine
