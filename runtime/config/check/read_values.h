#pragma once

// Reads the tree of a config file key by key: known names, aliases, types, ranges, "auto", and what
// is not built. What several keys say together is the rules' business (rule.h).

#include <nlohmann/json.hpp>

#include "runtime/base/positioned_json.h"
#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/values.h"

namespace ds::config {

enum class UnknownKeys { kRefused, kIgnored };

// Fills `values` with what the file gives and logs every problem. Returns the same config in plain
// form: names and values in the registry's spelling, without null and "auto" and without sections
// that hold nothing else.
//
// Comments are passed over: keys that begin with "_", "#" or "//" or are called "comment",
// anywhere, and `origins` beside the keys of the file, where a resolved config says where its
// values are from. Ignored unknown keys are one warning.
nlohmann::ordered_json ReadValues(const JsonNode& root, Values* values, IssueLog* issues,
                                  UnknownKeys unknown = UnknownKeys::kRefused);

}  // namespace ds::config
