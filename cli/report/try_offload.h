#pragma once

#include <filesystem>

#include "cli/report/host_facts.h"

namespace ds::cli {

// Finds out how offload to NVMe would use the folder, in a file without a name.
OffloadFacts TryOffload(const std::filesystem::path& folder);

}  // namespace ds::cli
