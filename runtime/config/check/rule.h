#pragma once

// Rule: what keys say together. Each rule is one named function with one test.
//
// A rule reads the values in force, logs what contradicts itself, and derives what follows from
// other keys. Each section lists its own; section_order.h puts the sections in order, which matters
// only where one rule derives what another reads.

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

  // Tells whether a switch is true.
  bool IsOn(Key key) const { return values.Get(key) == true; }
  // Tells whether the user gives the key with a value other than the default.
  bool IsChanged(Key key) const;
  // Blames `key`, which begins the sentence, at its place in the file.
  void Refuse(Key key, std::string_view problem);
};

struct Rule {
  std::string_view name;
  // The keys it reads. A rule is left out when the file gives one of them a value that was refused:
  // that has been reported, and what would follow from it means nothing.
  std::array<Key, 4> keys;
  void (*apply)(RuleContext& context);
};

}  // namespace ds::config
