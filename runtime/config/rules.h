#pragma once

// What keys say together: each rule is one named function in one list, with one test.
//
// A rule reads the values in force, logs what contradicts itself, and derives what follows from
// other keys. Rules run in the order of the list, which matters only where one derives what
// another reads.

#include <array>
#include <string_view>
#include <vector>

#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/job_facts.h"
#include "runtime/config/check/values.h"

namespace ds::config {

struct RuleContext {
  Values& values;
  IssueLog& issues;
  const JobFacts& facts;
};

struct Rule {
  std::string_view name;
  // The keys it reads. A rule is left out when the file gives one of them a value that was refused:
  // that has been reported, and what would follow from it means nothing.
  std::array<std::string_view, 4> keys;
  void (*apply)(RuleContext& context);
};

// Those of rules.cc, then those of feature_rules.cc.
std::vector<Rule> AllRules();

void ApplyRules(RuleContext& context);

}  // namespace ds::config
