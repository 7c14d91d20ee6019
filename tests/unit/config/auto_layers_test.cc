// "auto" means the same in every layer: in the user's own file, in a base that it is laid over (a
// recipe, Trainer's ds_config, the built-in config), with flags over it, and in a run that goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/file/base_config.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/file/resolved_config.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/sections/auto_values.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

// Files in which a key that takes "auto" stands: those of its section, else the last.
struct Surroundings {
  const char* section;
  const char* config;
};
constexpr Surroundings kSurroundings[] = {
    {"scheduler", R"({"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params":
        {"lr": 0.5}}, "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 50}}})"},
    {"scheduler", R"({"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params":
        {"lr": "auto"}}, "scheduler": {"type": "WarmupLR", "params": {}}})"},
    {"scheduler", R"({"train_batch_size": "auto", "scheduler": {"type": "WarmupCosineLR",
        "params": {"total_num_steps": 50}}})"},
    {"scheduler", R"({"train_batch_size": "auto", "scheduler": {"type": "cosine",
        "params": {"total_num_steps": 50}}})"},
    {"zero_optimization", R"({"train_batch_size": "auto", "zero_optimization": {"stage": 3}})"},
    {"optimizer", R"({"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}})"},
    {"", R"({"train_batch_size": "auto", "scheduler": {"type": "WarmupLR", "params": {}}})"},
};

struct AutoCase {
  std::string key;
  Json config;  // with the key "auto"
  TrainingFlags flags;
};

JobFacts FactsOf(const AutoCase& each) {
  return {.world_size = 2, .flags = each.flags, .model = ModelFacts{"tiny", 64}, .total_steps = 40};
}

bool HasFlag(const TrainingFlags& flags, std::string_view key) {
  const std::vector<FlagKey> keys = KeysOfFlags(flags);
  return std::any_of(keys.begin(), keys.end(),
                     [&](const FlagKey& each) { return std::string_view(each.key) == key; });
}

CheckResult Check(const AutoCase& each, const JobFacts& facts) {
  return CheckConfig(each.config.dump(), "ds.json", facts);
}

// Every key of the registry that takes "auto", wherever a file with it is right, with no flags and
// with all that go with one.
std::vector<AutoCase> MakeAutoCases() {
  const std::vector<TrainingFlags> flags = {
      {},
      {.learning_rate = 0.25, .adam_beta1 = 0.7, .warmup_steps = 7.0},
      {.gradient_accumulation_steps = 2, .adam_beta2 = 0.95, .warmup_steps = 0.25},
      {.per_device_train_batch_size = 2, .adam_epsilon = 1e-6, .weight_decay = 0.1},
      {.max_grad_norm = 0.5, .bf16 = true},
      {.warmup_steps = 0.0, .fp16 = true},
  };
  std::vector<AutoCase> cases;
  for (const Setting& setting : AllSettings()) {
    const bool takes_auto = setting.auto_rule == AutoRule::kDefault ||
                            setting.auto_rule == AutoRule::kDerived ||
                            setting.auto_rule == AutoRule::kResolved;
    if (!takes_auto || setting.key.find_first_of("<[") != std::string_view::npos) continue;
    bool has_section = false;
    for (const auto& [section, config] : kSurroundings) {
      const bool is_its_own = Key(section).Has(setting.key);
      if (!is_its_own && (has_section || *section != '\0')) continue;
      has_section = true;
      AutoCase each{.key = std::string(setting.key), .config = Json::parse(config), .flags = {}};
      PutAt(each.key, "auto", &each.config);
      const bool has_flag =
          std::any_of(flags.begin(), flags.end(),
                      [&](const TrainingFlags& given) { return HasFlag(given, setting.key); });
      for (const TrainingFlags& given : flags) {
        if (!has_flag && !HasFlag(given, keys::kOptimizerParamsLr)) continue;
        each.flags = given;
        if (Check(each, FactsOf(each)).ok) cases.push_back(each);
      }
    }
  }
  return cases;
}

const std::vector<AutoCase>& AutoCases() {
  static const std::vector<AutoCase> cases = MakeAutoCases();
  return cases;
}

// Names the keys that are not the same in both configs, with their values; "" for no key. A key
// that is absent has its default.
std::string Difference(const CheckResult& one, const CheckResult& other) {
  EXPECT_THAT(Messages(one.errors), IsEmpty());
  EXPECT_THAT(Messages(other.errors), IsEmpty());
  if (nlohmann::json(one.resolved) == nlohmann::json(other.resolved)) return "";
  std::string text;
  for (const Setting& setting : AllSettings()) {
    const std::string key(setting.key);
    if (setting.state == SettingState::kSection || key.find_first_of("<[") != key.npos) continue;
    const auto value = [&](const CheckResult& result) {
      const Json* const found = FindIn(result.resolved, key);
      return found == nullptr ? DefaultValue(setting) : *found;
    };
    if (value(one) == value(other)) continue;
    text += key + " " + value(one).dump() + " and " + value(other).dump() + "; ";
  }
  return text;
}

CheckResult CheckOverBase(const Json& base, const JobFacts& facts) {
  JobFacts over = facts;
  over.base = BaseConfig{.name = "base", .keys = base};
  return CheckConfig("{}", "ds.json", over);
}

TEST(AutoLayersTest, AutoMeansTheSameInABase) {
  int keys_with_flags = 0;
  std::string last;
  for (const AutoCase& each : AutoCases()) {
    SCOPED_TRACE(each.key + " in " + each.config.dump());
    const JobFacts facts = FactsOf(each);
    EXPECT_EQ(Difference(CheckOverBase(each.config, facts), Check(each, facts)), "");
    keys_with_flags += each.key == last ? 0 : 1;
    last = each.key;
  }
  EXPECT_GT(keys_with_flags, 20);
}

// Over a base a flag replaces a value as it fills an "auto".
TEST(AutoLayersTest, AFlagReplacesAValueOfABase) {
  int replaced = 0;
  for (const AutoCase& each : AutoCases()) {
    SCOPED_TRACE(each.key + " in " + each.config.dump());
    const JobFacts facts = FactsOf(each);
    const CheckResult plain =
        CheckConfig(each.config.dump(), "ds.json", FactsOf({.key = "", .config = {}, .flags = {}}));
    if (!plain.ok || !HasFlag(facts.flags, each.key)) continue;
    Json base = each.config;
    PutAt(each.key, ValueOf(plain, each.key), &base);
    const CheckResult over = CheckOverBase(base, facts);
    ASSERT_THAT(Messages(over.errors), IsEmpty());
    EXPECT_EQ(ValueOf(over, each.key), ValueOf(Check(each, facts), each.key));
    ++replaced;
  }
  EXPECT_GT(replaced, 20);
}

// As dsrun writes it for the ranks and a resume reads it back, with other steps.
TEST(AutoLayersTest, AResumeFindsItAnew) {
  for (const AutoCase& each : AutoCases()) {
    SCOPED_TRACE(each.key + " in " + each.config.dump());
    JobFacts facts = FactsOf(each);
    const double warmup = facts.flags.warmup_steps.value_or(0.0);
    for (const std::int64_t first : {4, 40}) {
      facts.total_steps = first;
      const CheckResult begun = Check(each, facts);
      ASSERT_THAT(Messages(begun.errors), IsEmpty());
      const Json stored = Json::parse(ToDsConfigJson(begun));
      JobFacts later{.world_size = 2, .model = facts.model, .total_steps = 400};
      if (warmup > 0.0 && warmup < 1.0) later.flags.warmup_steps = warmup;
      facts.total_steps = 400;
      const std::string reopened = PutAutosBack(stored, begun.derived).dump();
      EXPECT_EQ(Difference(CheckConfig(reopened, "the run's", later), Check(each, facts)), "");
    }
  }
}

}  // namespace
}  // namespace ds::config
