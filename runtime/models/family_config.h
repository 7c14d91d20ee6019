#pragma once

// The keys of each family's config.json.

#include "runtime/models/config_reader.h"
#include "runtime/models/model_config.h"

namespace ds::models {

// Each fills the whole ModelConfig except `folder` and `json`; errors stay in the reader.
void ParseGpt2(ConfigReader& reader, ModelConfig* config);
void ParseLlama(ConfigReader& reader, ModelConfig* config);

}  // namespace ds::models
