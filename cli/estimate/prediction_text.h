#pragma once

// This is what `dsrun estimate --deepspeed_config` shows of a prediction: a table, or JSON.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/estimate/predict_memory.h"
#include "runtime/base/saturating.h"

namespace ds::cli {

struct Prediction {
  config::DsConfig config;
  engine::JobShape job;
  int hosts = 1;
  int ranks_of_host = 1;  // of the one that has the most
  MemoryPrediction rank;
  std::vector<Change> changes;
  // Says what a rank may have, in the tier where it computes. Absent: nobody has said.
  std::optional<std::int64_t> room;
  std::int64_t largest_micro_batch = 0;  // that fits there

  // Counts what the ranks of the host with the most of them will hold there.
  std::int64_t host_bytes() const {
    return kSharedProgramBytes + SaturatingProduct(ranks_of_host, rank.host_bytes());
  }
  bool fits() const { return !room || rank.bytes() <= *room; }
};

// Fills in all that follows from the first four and `room`.
Prediction MakePrediction(Prediction question);

std::string ToText(const Prediction& prediction);
// Sizes are bytes. {"ranks","hosts","micro_batch","device","host","process","peak","when",...}
nlohmann::ordered_json ToJson(const Prediction& prediction);

}  // namespace ds::cli
