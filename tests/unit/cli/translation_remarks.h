#pragma once

// Tests of translations read their golden here, and find remarks by the name of an argument.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/translate/translation.h"
#include "runtime/base/files.h"
#include "tests/places.h"

namespace ds::cli {

// The golden of scripts/goldens/make_translate_goldens.py.
inline const nlohmann::ordered_json& TranslateGolden() {
  static const auto golden = nlohmann::ordered_json::parse(
      *ReadFile(DS_SOURCE_DIR "/tests/unit/cli/goldens/translate.json"));
  return golden;
}

// The remark on an argument; fails when there is none.
inline Remark On(const Translation& translation, const std::string& name) {
  for (const Remark& remark : translation.remarks) {
    if (remark.name == name) return remark;
  }
  ADD_FAILURE() << "no remark on " << name;
  return {};
}

inline std::vector<std::string> Missing(const Translation& translation) {
  std::vector<std::string> names;
  for (const Remark& remark : translation.remarks) {
    if (remark.mapping == Mapping::kMissing) names.push_back(remark.name);
  }
  return names;
}

}  // namespace ds::cli
