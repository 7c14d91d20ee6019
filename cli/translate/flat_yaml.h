#pragma once

// ReadFlatYaml reads the part of YAML 1.1 that PyYAML's safe_dump writes of settings: a mapping of
// names to scalars, to {} and [], to lists of scalars, and to mappings of the same kind, one
// deeper. Comments, quoted texts and a leading "---" are read, too. Scalars mean what PyYAML's
// safe_load makes of them: null, booleans, whole numbers, numbers with a point, texts.
//
// Everything else (anchors, tags, block texts, flow mappings with something in them, deeper
// nesting, tabs, a name twice) is refused with its line. Pure.

#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::cli {

// The error begins "line N: ".
StatusOr<nlohmann::ordered_json> ReadFlatYaml(std::string_view text);

}  // namespace ds::cli
