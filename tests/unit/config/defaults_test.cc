// The registry's defaults against those of DeepSpeed's own code.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/registry.h"
#include "tests/unit/config/goldens.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// Where the two say the same in different words.
const std::map<std::string_view, Json> kOtherWords = {
    {"zero_optimization.overlap_comm", false},  // null follows the stage, and this is stage 0
    {"checkpoint.tag_validation", "WARN"},      // any case is accepted
};

// The registry's path of a dotted key as users write it, or "".
std::string RegistryPath(std::string_view key) {
  std::string path;
  while (!key.empty()) {
    const std::string_view name = key.substr(0, key.find('.'));
    path = MemberPath(path, name);
    if (path.empty()) return "";
    key.remove_prefix(std::min(name.size() + 1, key.size()));
  }
  return path;
}

TEST(DefaultsTest, AreThoseOfDeepSpeed) {
  std::set<std::string> compared;
  for (const nlohmann::json& row : ReadGolden("defaults.json")) {
    const std::string path = RegistryPath(row[0].get<std::string>());
    const Setting* setting = FindSetting(path);
    // Attributes of DeepSpeed's objects that no file can name, and sections.
    if (setting == nullptr || setting->state == SettingState::kSection) continue;
    compared.insert(path);
    EXPECT_FALSE(setting->required) << path;
    const auto other_words = kOtherWords.find(path);
    const Json expected =
        other_words == kOtherWords.end() ? DefaultValue(*setting) : other_words->second;
    EXPECT_EQ(expected, Json(row[1])) << path << ", from " << row[2];
  }
  EXPECT_GE(compared.size(), 400u);
}

}  // namespace
}  // namespace ds::config
