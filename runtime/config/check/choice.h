#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "runtime/base/check.h"

namespace ds::config {

// The enumerator that `name`, a choice of the registry, stands for.
template <typename Enum, std::size_t N>
Enum ChosenOf(const std::pair<std::string_view, Enum> (&choices)[N],
              const nlohmann::ordered_json& name) {
  for (const auto& [known, value] : choices) {
    if (name == known) return value;
  }
  CheckFailed(__FILE__, __LINE__, "a choice of the registry", name.dump());
}

}  // namespace ds::config
