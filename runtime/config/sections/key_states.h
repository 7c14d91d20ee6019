#pragma once

// Rules that hold for every key alike: what its state in the registry (keys/setting.h) makes of a
// value.

#include <span>

#include "runtime/config/check/rule.h"

namespace ds::config {

// Before any other rule: values of deprecated names go to the new ones.
std::span<const Rule> RenamedKeyRules();
// Once flags and "auto" are known: what is not built is refused, what has no effect is reported.
std::span<const Rule> KeyStateRules();

}  // namespace ds::config
