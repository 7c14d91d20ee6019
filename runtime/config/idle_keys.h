#pragma once

// ListIdleKeys lists the keys of a ds_config that have no effect on the ranks of this job. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/ds_config.h"

namespace ds::config {

struct RankPlacement {
  bool on_cpu = false;
  bool one_host = false;
};

// Returns one sentence per such key. `given` is the user's ds_config as JSON (TrainJob).
std::vector<std::string> ListIdleKeys(std::string_view given, const DsConfig& config,
                                      RankPlacement placement);

}  // namespace ds::config
