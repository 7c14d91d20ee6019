#pragma once

// MemoryMarks: what a rank's memory is at the ends of forward passes, backward passes and steps.
// The activations are measured there, and with memory_breakdown all uses are written down, and
// printed where asked for.
//
// Threads: one at a time. What is borrowed outlives this.

#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/device/activation_meter.h"
#include "runtime/device/memory_ledger.h"

namespace ds::engine {

struct MemoryMarkOptions {
  const device::MemoryLedger* ledger = nullptr;  // borrowed
  device::ActivationMeter* meter = nullptr;      // borrowed; null: nobody measures
  bool breakdown = false;                        // memory_breakdown
  bool prints = false;                           // it, to the standard output
};

class MemoryMarks {
 public:
  MemoryMarks() = default;
  explicit MemoryMarks(const MemoryMarkOptions& options) : options_(options) {}

  // The rank is behind a "forward", a "backward" or a "step".
  void Mark(std::string_view phase);

  // By phase, the latest mark of each: {"forward":{"parameters":{"host":1},...,
  // "tensors":{"bytes":1,"peak":2},"resident_bytes":1},...}. "tensors" is what the allocator of the
  // rank's device has out, its peak the most since the mark before. Empty without memory_breakdown.
  const nlohmann::ordered_json& breakdown() const { return breakdown_; }

 private:
  MemoryMarkOptions options_;
  nlohmann::ordered_json breakdown_ = nlohmann::ordered_json::object();
};

}  // namespace ds::engine
