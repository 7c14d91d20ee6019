#pragma once

// The resolved config: the config in force as a ds_config of its own, which dsrun and DeepSpeed
// read to the same values on the same world size.
//
// It holds what the user gave, by the names of today, what "auto" stands for, and every key that
// the runtime honours. It leaves out null, which is a key's absence, the defaults of what is not
// built or has no effect, and what a section says must not stand there (section_order.h).

#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/config/check/values.h"

namespace ds::config {

// Puts a value at a dotted path of the registry, whose names hold no dots themselves.
void PutAt(std::string_view path, nlohmann::ordered_json value, nlohmann::ordered_json* config);

// The value at a dotted path; null where the config does not have it.
const nlohmann::ordered_json* FindIn(const nlohmann::ordered_json& config, std::string_view path);

// `given` is what ReadValues returned.
nlohmann::ordered_json MakeResolvedConfig(const Values& values,
                                          const nlohmann::ordered_json& given);

// Says where each of these values is from: a place in the file, "default", a flag, "derived from
// ...". A key that others decide and that is left out has its value here, too.
nlohmann::ordered_json ListOrigins(const Values& values);

}  // namespace ds::config
