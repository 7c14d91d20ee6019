// The 579 keys of DeepSpeed 0.19.6 (goldens/catalogue.json), one by one: what the registry decides.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>
#include <string>

#include "runtime/config/keys/registry.h"
#include "tests/unit/config/goldens.h"

namespace ds::config {
namespace {

const char* NameOf(SettingState state) {
  switch (state) {
    case SettingState::kSection:
      return "sections";
    case SettingState::kWorks:
      return "work";
    case SettingState::kAccepted:
      return "accepted without effect, with the reason";
    case SettingState::kRefused:
      return "refused with the missing feature, accepted at their default";
    case SettingState::kRenamed:
      return "deprecated names of other keys";
  }
  return "";
}

TEST(CatalogueTest, EveryOneOfThe579KeysIsDecided) {
  std::map<SettingState, int> count;
  std::set<std::string> keys;
  for (const nlohmann::json& row : ReadGolden("catalogue.json")) {
    const auto key = row.get<std::string>();
    EXPECT_TRUE(keys.insert(key).second) << key;
    const Setting* setting = FindSetting(key);
    ASSERT_NE(setting, nullptr) << key;
    ++count[setting->state];
  }
  EXPECT_EQ(keys.size(), 579u);
  for (const auto& [state, number] : count) std::cout << number << " " << NameOf(state) << "\n";
}

}  // namespace
}  // namespace ds::config
