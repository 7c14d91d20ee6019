#include "runtime/config/keys/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/file/check_config.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Json = nlohmann::ordered_json;

std::vector<std::string> Names(std::string_view key) {
  std::vector<std::string> names{""};
  for (const char c : key) {
    if (c == '.') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  return names;
}

// The nested objects in which `names` leads to `value`; placeholders become a name of their own.
Json Nested(const std::vector<std::string>& names, Json value) {
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (name->ends_with("[]")) {
      value = Json::object({{name->substr(0, name->size() - 2), Json::array({std::move(value)})}});
    } else {
      value = Json::object({{name->starts_with('<') ? "any_name" : *name, std::move(value)}});
    }
  }
  return value;
}

CheckResult CheckDocument(const Json& extra) {
  Json config = Json::object({{"train_micro_batch_size_per_gpu", 8}});
  config.update(extra);
  if (config["train_micro_batch_size_per_gpu"].is_null()) config["train_batch_size"] = 8;
  return CheckConfig(config.dump(), "ds.json", 1);
}

// A value of the key's type that is valid and not the default; null where none comes to mind.
Json OtherValue(const Setting& setting) {
  const Json choices = Json::parse(setting.choices_json);
  for (const Json& choice : choices) {
    if (!IsDefault(setting, choice) && choice != "auto") return choice;
  }
  const Json value = DefaultValue(setting);
  switch (setting.type) {
    case ValueType::kBool:
      return !value.is_boolean() || !value.get<bool>();
    case ValueType::kInt:
    case ValueType::kFloat:
      for (const int candidate : {2, 1, 3}) {
        if (candidate <= setting.maximum && !IsDefault(setting, candidate)) return candidate;
      }
      return nullptr;
    case ValueType::kString:
      return choices.empty() ? Json("other") : Json(nullptr);
    case ValueType::kList:
      return Json::array({"other"});
    case ValueType::kObject:
    case ValueType::kAny:
      return Json::object({{"other", 1}});
  }
  return nullptr;
}

// The catalogue; the parameters that it leaves to the constructors of optimizers (dampening,
// nesterov, amsgrad, ...), to the mup package (base_shapes) and to schedulers, those of
// transformers included; the scopes of compression's groups; and the arguments of the MoE layer.
constexpr int kKeys = 579 + 12 + 31 + 10 + 10 + 18;

TEST(KeyTest, ASectionHasTheKeysBelowIt) {
  constexpr Key kSection("optimizer.params");
  EXPECT_TRUE(kSection.Has("optimizer.params.lr"));
  EXPECT_TRUE(kSection.Has("optimizer.params.a.b"));
  EXPECT_FALSE(kSection.Has("optimizer.params"));
  EXPECT_FALSE(kSection.Has("optimizer.paramsx.lr"));
  EXPECT_FALSE(kSection.Has("optimizer.type"));
}

TEST(RegistryTest, HoldsTheFullCatalogueInOrder) {
  EXPECT_EQ(AllSettings().size(), kKeys);
  EXPECT_EQ(AllSettings().front().key, "train_batch_size");
  std::set<std::string_view> keys;
  for (const Setting& setting : AllSettings()) {
    EXPECT_TRUE(keys.insert(setting.key).second) << setting.key;
    EXPECT_EQ(FindSetting(setting.key), &setting);
  }
  EXPECT_EQ(FindSetting("zero_optimization.stag"), nullptr);
  EXPECT_EQ(FindSetting(""), nullptr);
}

TEST(RegistryTest, EveryKeyIsDecided) {
  std::map<SettingState, int> count;
  for (const Setting& setting : AllSettings()) {
    ++count[setting.state];
    const bool is_without_effect =
        setting.state == SettingState::kAccepted || setting.state == SettingState::kRefused;
    EXPECT_EQ(!setting.reason.empty(), is_without_effect) << setting.key;
    EXPECT_EQ(!setting.cost.empty(), setting.state == SettingState::kWorks) << setting.key;
    EXPECT_EQ(setting.state == SettingState::kSection, HasChildren(setting.key)) << setting.key;
    EXPECT_FALSE(setting.doc.empty()) << setting.key;
    if (setting.state != SettingState::kRenamed) continue;
    const Setting* new_setting = FindSetting(setting.renamed_to);
    ASSERT_NE(new_setting, nullptr) << setting.key;
    EXPECT_NE(new_setting->state, SettingState::kRenamed) << setting.key;
  }
  EXPECT_EQ(count[SettingState::kWorks] + count[SettingState::kAccepted] +
                count[SettingState::kRefused] + count[SettingState::kRenamed] +
                count[SettingState::kSection],
            kKeys);
}

// The one section of which even the defaults ask for something that is not built.
bool IsOfSparseAttention(const Setting& setting) {
  return Key("sparse_attention").Has(setting.key);
}

TEST(RegistryTest, EveryKeyIsAcceptedAtItsDefault) {
  for (const Setting& setting : AllSettings()) {
    if (setting.required || IsOfSparseAttention(setting)) continue;
    const CheckResult result = CheckDocument(Nested(Names(setting.key), DefaultValue(setting)));
    EXPECT_THAT(Messages(result.errors), IsEmpty()) << setting.key;
  }
}

TEST(RegistryTest, ConfigOfAllDefaultsIsAccepted) {
  Json config = Json::object();
  for (const Setting& setting : AllSettings()) {
    const bool is_value = setting.state != SettingState::kSection && !setting.required &&
                          setting.key.find_first_of("<[") == std::string_view::npos;
    if (!is_value || IsOfSparseAttention(setting)) continue;
    Json* place = &config;
    for (const std::string& name : Names(setting.key)) place = &(*place)[name];
    *place = DefaultValue(setting);
  }
  config["train_batch_size"] = 8;
  EXPECT_THAT(Messages(CheckConfig(config.dump(), "ds.json", 1).errors), IsEmpty());
}

TEST(RegistryTest, RefusedKeysAreRefusedByNameOnceTheyAskForSomething) {
  int refused = 0;
  for (const Setting& setting : AllSettings()) {
    const Json value = OtherValue(setting);
    if (setting.state != SettingState::kRefused || value.is_null()) continue;
    const bool is_harmless = IsInList(setting.harmless_json, value);
    const CheckResult result = CheckDocument(Nested(Names(setting.key), value));
    if (is_harmless) {
      EXPECT_THAT(Messages(result.errors), IsEmpty()) << setting.key;
    } else if (setting.switch_key.empty()) {
      EXPECT_THAT(Messages(result.errors),
                  Contains(HasSubstr("is not supported yet (" + std::string(setting.reason) + ")")))
          << setting.key;
      ++refused;
    } else {
      EXPECT_THAT(Messages(result.warnings),
                  Contains(HasSubstr("has no effect while " + std::string(setting.switch_key))))
          << setting.key;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(RegistryTest, AcceptedKeysHaveAReasonForNoEffect) {
  for (const Setting& setting : AllSettings()) {
    if (setting.state != SettingState::kAccepted) continue;
    const Json value = OtherValue(setting);
    ASSERT_FALSE(value.is_null()) << setting.key;
    Json config = Nested(Names(setting.key), value);
    if (setting.key == "optimizer.params.cuda_aware" ||
        setting.key == "optimizer.params.comm_backend_name") {
      config["optimizer"]["type"] = "OneBitAdam";
    }
    const CheckResult result = CheckDocument(config);
    EXPECT_THAT(Messages(result.errors), IsEmpty()) << setting.key;
    EXPECT_THAT(Messages(result.warnings), Contains(HasSubstr(std::string(setting.reason))))
        << setting.key;
  }
}

TEST(RegistryTest, AutoIsTheDefaultWhereDeepSpeedDropsIt) {
  int taken = 0;
  for (const Setting& setting : AllSettings()) {
    if (setting.auto_rule != AutoRule::kDefault || DefaultValue(setting) == "auto") continue;
    ++taken;
    const CheckResult result = CheckDocument(Nested(Names(setting.key), "auto"));
    EXPECT_THAT(Messages(result.errors), IsEmpty()) << setting.key;
    const Json resolved = ValueOf(result, std::string(setting.key));
    // A section, a placeholder, an old name, a parameter of another optimizer, or null.
    if (!resolved.is_primitive() || resolved.is_null()) continue;
    EXPECT_EQ(resolved, DefaultValue(setting)) << setting.key;
    EXPECT_THAT(OriginOf(result, std::string(setting.key)), HasSubstr("\"auto\" at ds.json:1:"));
  }
  EXPECT_GT(taken, 200);
}

TEST(RegistryTest, RenamedKeysPassTheirValueOn) {
  int renamed = 0;
  for (const Setting& setting : AllSettings()) {
    if (setting.state != SettingState::kRenamed) continue;
    ++renamed;
    const Json value = OtherValue(setting);
    const CheckResult result = CheckDocument(Nested(Names(setting.key), value));
    EXPECT_THAT(Messages(result.warnings),
                Contains(HasSubstr(std::string(setting.key) + " is deprecated: write " +
                                   std::string(setting.renamed_to))));
    const Json carries = Json::parse(setting.carries_json);
    const std::string new_key(setting.renamed_to);
    EXPECT_EQ(ValueOf(result, new_key), carries.value(value.dump(), value)) << setting.key;
    EXPECT_THAT(OriginOf(result, new_key), HasSubstr(std::string(setting.key)));
    EXPECT_EQ(ValueOf(result, std::string(setting.key)), Json()) << setting.key;
  }
  EXPECT_EQ(renamed, 9);
}

TEST(RegistryTest, EveryMisspeltKeyIsRefusedWithTheRightName) {
  for (const Setting& setting : AllSettings()) {
    std::vector<std::string> names = Names(setting.key);
    const std::string right = names.back();
    std::string& name = names.back();
    if (name.size() < 2) continue;  // no two letters to swap
    const auto different = [](char a, char b) { return a != b; };
    const auto middle = name.begin() + static_cast<std::ptrdiff_t>(name.size()) / 2;
    const auto pair = std::adjacent_find(middle - 1, name.end(), different);
    ASSERT_NE(pair, name.end()) << setting.key;
    std::iter_swap(pair, pair + 1);
    if (name.starts_with("_")) continue;  // a comment
    if (IsOfSparseAttention(setting)) continue;
    const CheckResult result = CheckDocument(Nested(names, 1));
    ASSERT_EQ(result.errors.size(), 1u) << setting.key;
    EXPECT_THAT(result.errors[0].message, HasSubstr("unknown key " + result.errors[0].key +
                                                    "; did you mean '" + right + "'?"))
        << setting.key;
  }
}

TEST(RegistryTest, EveryAliasLeadsToItsKey) {
  EXPECT_EQ(MemberPath("", "bfloat16"), "bf16");
  EXPECT_EQ(MemberPath("zero_optimization", "max_live_parameters"),
            "zero_optimization.stage3_max_live_parameters");
  EXPECT_THAT(MemberNames(""), Contains("bfloat16"));
  EXPECT_EQ(AliasTarget("bf16"), "");
}

TEST(RegistryTest, PlaceholdersStandForAnyNameButAreNoNamesThemselves) {
  const std::string groups = "compression_training.row_pruning.different_groups";
  EXPECT_EQ(MemberPath(groups, "attention"), groups + ".<g>");
  EXPECT_EQ(MemberPath(groups, "a.b"), groups + ".<g>");
  EXPECT_EQ(MemberPath(groups + ".<g>", "params"), groups + ".<g>.params");
  EXPECT_EQ(MemberPath("", "<g>"), "");
  EXPECT_EQ(MemberPath("", "zero_optimization.stage"), "");
  EXPECT_EQ(MemberPath("", ""), "");
}

}  // namespace
}  // namespace ds::config
