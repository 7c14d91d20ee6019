#pragma once

// ModulePattern: a regular expression over module names in PEFT's configs. The patterns are written
// for Python's re; PCRE2 runs them with a limit on its steps.
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
  // Fails with the reason when the pattern cannot be compiled.
  static StatusOr<ModulePattern> Compile(const std::string& pattern);

  // True when the full name matches. A pattern that exceeds the step limit is an error.
  StatusOr<bool> Matches(std::string_view name) const;

 private:
  explicit ModulePattern(std::shared_ptr<pcre2_real_code_8> code) : code_(std::move(code)) {}
  std::shared_ptr<pcre2_real_code_8> code_;
};

}  // namespace ds::models
