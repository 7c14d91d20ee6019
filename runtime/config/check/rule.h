#pragma once

// Rule checks several keys against each other. Each rule is one named function with one test.
//
// A rule reads the values in force, logs contradictions, and derives values from other keys. Each
// section lists its own rules. section_order.h puts the sections in order, which matters only where
// one rule derives a value that another reads.

#include <array>
#include <string_view>

#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/job_facts.h"
#include "runtime/config/check/values.h"

namespace ds::config {

struct RuleContext {
  Values& values;
  IssueLog& issues;
  const JobFacts& facts;

  // Returns true if a switch is true.
  bool IsOn(Key key) const { return values.Get(key) == true; }
  // Returns true if the user gives the key with a value other than the default.
  bool IsChanged(Key key) const;
  // Logs an error about `key` at its position in the file. `problem` continues a sentence that
  // begins with the key.
  void Refuse(Key key, std::string_view problem);
};

struct Rule {
  std::string_view name;
  // The keys it reads. The rule is skipped when the file gives one of these keys a rejected value:
  // that error is reported already, and the rule's result would be meaningless.
  std::array<Key, 4> keys;
  void (*apply)(RuleContext& context);
};

}  // namespace ds::config
