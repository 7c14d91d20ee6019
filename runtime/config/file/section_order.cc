#include "runtime/config/file/section_order.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include "runtime/config/sections/activation_section.h"
#include "runtime/config/sections/auto_values.h"
#include "runtime/config/sections/batch_section.h"
#include "runtime/config/sections/elasticity_section.h"
#include "runtime/config/sections/key_states.h"
#include "runtime/config/sections/not_built.h"
#include "runtime/config/sections/optimizer_section.h"
#include "runtime/config/sections/parallel_section.h"
#include "runtime/config/sections/precision_section.h"
#include "runtime/config/sections/scheduler_section.h"
#include "runtime/config/sections/zero_section.h"

namespace ds::config {
namespace {

struct Section {
  std::span<const Rule> (*rules)();
  void (*fill)(const Values& values, DsConfig* config) = nullptr;  // null: nothing for the runtime
  bool (*leaves_out)(const Values& values, Key key) = nullptr;     // null: no key
};

std::span<const Rule> NoRules() { return {}; }

constexpr Section kSections[] = {
    {RenamedKeyRules},
    {AutoValueRules},
    {KeyStateRules},
    {ParallelRules, FillParallel},                    // says how many ranks share the batch
    {ElasticityRules, nullptr, ElasticityLeavesOut},  // decides the batch sizes where it is on
    {BatchRules, FillBatch},
    {OptimizerRules, FillOptimizer, OptimizerLeavesOut},
    {PrecisionRules, FillPrecision, PrecisionLeavesOut},  // asks which optimizer there is
    {SchedulerRules, FillScheduler, SchedulerLeavesOut},  // replaces the optimizer's betas
    {ZeroRules, FillZero, ZeroLeavesOut},
    {NoRules, FillActivation},
    {NotBuiltRules},
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

bool LeavesOut(const Values& values, Key key) {
  return std::any_of(std::begin(kSections), std::end(kSections), [&](const Section& section) {
    return section.leaves_out != nullptr && section.leaves_out(values, key);
  });
}

DsConfig FillConfig(const Values& values) {
  DsConfig config;
  for (const Section& section : kSections) {
    if (section.fill != nullptr) section.fill(values, &config);
  }
  return config;
}

}  // namespace ds::config
