#pragma once

// Regex: a pattern of a tokenizer's file, run by PCRE2's just-in-time compiler.
//
// The patterns are written for Oniguruma with Ruby's syntax, as Hugging Face's library runs them.
// Where PCRE2 would read one differently it is translated (\s, \w, \h, \u, scripts, (?m)); what
// cannot be translated (nested sets, && in sets, {n,m}+) is refused with its place.
//
// Threads: const functions may be called concurrently.

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

  // The matches and what lies between them, in order, covering the whole text; an empty text is one
  // part that does not match. Requires valid UTF-8. A pattern that takes too long is
  // kResourceExhausted.
  Status FindMatches(std::string_view text, std::vector<Match>* matches) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  explicit Regex(pcre2_real_code_8* code) : code_(code) {}

  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

// The pattern in PCRE2's words, or where it says what they cannot.
StatusOr<std::string> TranslateOnigurumaPattern(std::string_view pattern);

}  // namespace ds::tokenizer
