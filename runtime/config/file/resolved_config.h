#pragma once

// The resolved config is the config in force as a ds_config of its own. dsrun and DeepSpeed read it
// to the same values on the same world size.
//
// It holds the user's values under current names, the resolved values of "auto", and every key that
// the runtime honours. It omits null (an absent key), the defaults of keys that are not built or
// have no effect, and keys that their section excludes (section_order.h).

#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/config/check/values.h"

namespace ds::config {

// Sets the value at a dotted path of the registry. Names in the path hold no dots themselves.
void PutAt(std::string_view path, nlohmann::ordered_json value, nlohmann::ordered_json* config);

// Returns the value at a dotted path; null where the config does not have it.
const nlohmann::ordered_json* FindIn(const nlohmann::ordered_json& config, std::string_view path);

// Builds the resolved config. `given` is the config that ReadValues returned.
nlohmann::ordered_json MakeResolvedConfig(const Values& values,
                                          const nlohmann::ordered_json& given);

// Returns the origin of each value: a position in the file, "default", a flag, or "derived from
// ...". Includes keys that the resolved config omits because other keys decide them.
nlohmann::ordered_json ListOrigins(const Values& values);

}  // namespace ds::config
