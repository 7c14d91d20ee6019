#pragma once

// Regex is a pattern of a tokenizer's file, run by PCRE2's just-in-time compiler.
//
// The patterns are written for Oniguruma with Ruby's syntax, as Hugging Face's library runs them.
// Constructs that PCRE2 would read differently are translated (\s, \w, \h, \u, scripts, (?m)).
// Constructs that cannot be translated (nested sets, && in sets, {n,m}+) are rejected with their
// position.
//
// Thread-safe: const functions may be called concurrently.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tokenizer/text/aligned_text.h"

struct pcre2_real_code_8;

namespace ds::tokenizer {

class Regex {
 public:
  static StatusOr<Regex> Compile(std::string_view pattern);

  // Fills in the matches and the gaps between them, in order, covering the full text; an empty text
  // is one part that does not match. Requires valid UTF-8. A pattern that takes too long is
  // kResourceExhausted.
  Status FindMatches(std::string_view text, std::vector<Match>* matches) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  explicit Regex(pcre2_real_code_8* code) : code_(code) {}

  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

// Translates the pattern to PCRE2's syntax. The error names the position of a construct that cannot
// be translated.
StatusOr<std::string> TranslateOnigurumaPattern(std::string_view pattern);

}  // namespace ds::tokenizer
