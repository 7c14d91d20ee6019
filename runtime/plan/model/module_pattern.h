#pragma once

// ModulePattern: a regular expression over names of modules, as PEFT's configs have them (written
// for Python's re, run by PCRE2 with a bound on its steps).
//
// Threads: const functions may be called concurrently.

#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

struct pcre2_real_code_8;

namespace ds::models {

class ModulePattern {
 public:
  // The error says why the pattern is not understood.
  static StatusOr<ModulePattern> Compile(const std::string& pattern);

  // True when the whole name matches. A pattern that takes too many steps is an error.
  StatusOr<bool> Matches(std::string_view name) const;

 private:
  explicit ModulePattern(std::shared_ptr<pcre2_real_code_8> code) : code_(std::move(code)) {}
  std::shared_ptr<pcre2_real_code_8> code_;
};

}  // namespace ds::models
