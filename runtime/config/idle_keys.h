#pragma once

// ListIdleKeys: keys that a ds_config gives and that change nothing where its ranks compute. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/ds_config.h"

namespace ds::config {

struct RankPlaces {
  bool on_cpu = false;
  bool one_host = false;
};

// A sentence for each of them. `given` is the ds_config as the user gave it, as JSON (TrainJob).
std::vector<std::string> ListIdleKeys(std::string_view given, const DsConfig& config,
                                      RankPlaces places);

}  // namespace ds::config
