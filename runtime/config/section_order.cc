#include "runtime/config/section_order.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "runtime/config/sections/auto_values.h"
#include "runtime/config/sections/batch_section.h"
#include "runtime/config/sections/elasticity_section.h"
#include "runtime/config/sections/key_states.h"
#include "runtime/config/sections/not_built.h"
#include "runtime/config/sections/optimizer_section.h"
#include "runtime/config/sections/precision_section.h"
#include "runtime/config/sections/scheduler_section.h"
#include "runtime/config/sections/zero_section.h"

namespace ds::config {
namespace {

struct Section {
  std::span<const Rule> (*rules)();
  void (*fill)(const Values& values, DsConfig* config);  // null where nothing goes to the runtime
};

constexpr Section kSections[] = {
    {RenamedKeyRules, nullptr},
    {AutoValueRules, nullptr},
    {KeyStateRules, nullptr},
    {ElasticityRules, nullptr},  // decides the batch sizes where it is on
    {BatchRules, FillBatch},
    {OptimizerRules, FillOptimizer},
    {PrecisionRules, FillPrecision},  // asks which optimizer there is
    {SchedulerRules, FillScheduler},  // replaces the optimizer's betas
    {ZeroRules, FillZero},
    {NotBuiltRules, nullptr},
};

}  // namespace

std::vector<Rule> AllRules() {
  std::vector<Rule> all;
  for (const Section& section : kSections) {
    const std::span<const Rule> rules = section.rules();
    all.insert(all.end(), rules.begin(), rules.end());
  }
  return all;
}

void ApplyRules(RuleContext& context) {
  for (const Rule& rule : AllRules()) {
    const bool readable = std::none_of(rule.keys.begin(), rule.keys.end(), [&](Key key) {
      return !key.empty() && context.values.IsBroken(key);
    });
    if (readable) rule.apply(context);
  }
}

DsConfig FillConfig(const Values& values) {
  DsConfig config;
  for (const Section& section : kSections) {
    if (section.fill != nullptr) section.fill(values, &config);
  }
  return config;
}

}  // namespace ds::config
