#pragma once

// TryOffload tests how NVMe offload would use a folder of this host, with an unnamed file.

#include <filesystem>

#include "proto/host_facts.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

v1::OffloadFacts TryOffload(const std::filesystem::path& folder);

}  // namespace ds::cli
