#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/places.h"

namespace ds::pipeline {

// The answers of DeepSpeed, made by scripts/goldens/make_pipeline_goldens.py, which describes them.
inline nlohmann::json ReadGolden(const std::string& key) {
  std::ifstream file(DS_SOURCE_DIR "/tests/unit/pipeline/goldens/pipeline.json");
  const auto golden = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(golden.is_object() && golden.contains(key)) << key;
  return golden.value(key, nlohmann::json::array());
}

}  // namespace ds::pipeline
