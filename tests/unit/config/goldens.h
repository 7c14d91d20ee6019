#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/places.h"

namespace ds::config {

// The answers of the reference, made by scripts/goldens/make_config_goldens.py, which describes it.
inline nlohmann::json ReadGolden(const std::string& name) {
  std::ifstream file(DS_SOURCE_DIR "/tests/unit/config/goldens/" + name);
  nlohmann::json golden = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(golden.is_array()) << name;
  return golden;
}

}  // namespace ds::config
