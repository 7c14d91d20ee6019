#pragma once

// CheckConfigText checks the ds_config of a Python script, for its engine and for a plan of its
// memory. Pure.

#include <string>
#include <vector>

#include "runtime/config/ds_config.h"
#include "runtime/config/idle_keys.h"

namespace ds::python {

struct CheckedConfig {
  config::DsConfig config;
  // One sentence per key that has no effect, at all or on ranks at this place.
  std::vector<std::string> warnings;
};

// `text` is JSON. Throws a StatusError with all errors of the config, a line each. Requires
// world_size >= 1.
CheckedConfig CheckConfigText(const std::string& text, int world_size,
                              config::RankPlacement placement);

}  // namespace ds::python
