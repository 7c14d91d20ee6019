#pragma once

// An event as one object of events.jsonl.

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "cli/job/job_observer.h"

namespace ds::cli {

// Returns none for events that other files keep (output, metrics) or that repeat every second
// (heartbeats, beacons).
std::optional<nlohmann::ordered_json> ToJson(const HostEvent& event);

}  // namespace ds::cli
