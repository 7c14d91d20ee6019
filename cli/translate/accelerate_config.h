#pragma once

// TranslateAccelerateConfig: what `accelerate config` writes (default_config.yaml) as flags in
// front of a command, flags of `train` and a ds_config. The names are those of accelerate 1.15
// (ClusterConfig, the options of `accelerate launch`; a golden). Pure.

#include <nlohmann/json.hpp>
#include <string>

#include "cli/translate/translation.h"

namespace ds::cli {

// True of an object that has the keys of such a file.
bool IsAccelerateConfig(const nlohmann::ordered_json& config);

// `deepspeed` is the ds_config that `deepspeed_config_file` names; null when it names none.
// Requires IsAccelerateConfig(config).
Translation TranslateAccelerateConfig(const nlohmann::ordered_json& config,
                                      const nlohmann::ordered_json& deepspeed);

// The path that `deepspeed_config_file` names; "" when it names none.
std::string AccelerateDeepspeedPath(const nlohmann::ordered_json& config);

}  // namespace ds::cli
