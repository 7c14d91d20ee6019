#pragma once

// FindJobState describes a job that runs or has ended.

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/status.h"

namespace ds::cli {

// Returns the state of the job in this run folder as JSON, as `dsrun status --json` prints it: from
// its agent, or if there is none from the run folder. An agent that is about to end is as good as
// gone. kDeadlineExceeded: the agent does not reply. Thread-safe.
StatusOr<nlohmann::ordered_json> FindJobState(const std::filesystem::path& run);

}  // namespace ds::cli
