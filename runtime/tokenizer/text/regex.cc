#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/tokenizer/text/regex.h"

#include <pcre2.h>

#include "runtime/tokenizer/text/characters.h"

namespace ds::tokenizer {
namespace {

constexpr std::size_t kJitStackStart = 32 << 10;
constexpr std::size_t kJitStackMost = std::size_t{64} << 20;

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

// Search holds the state of one search. The stack is only allocated when the small one of the
// compiled code is full.
struct Search {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  ~Search() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }

  void Grow() {
    context = pcre2_match_context_create(nullptr);
    stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }

  int Run(const pcre2_code* code, std::string_view text, std::size_t start) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(code, subject, text.size(), start, PCRE2_NO_UTF_CHECK, data, context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && stack == nullptr) {
      Grow();
      found = pcre2_match(code, subject, text.size(), start, PCRE2_NO_UTF_CHECK, data, context);
    }
    return found;
  }
};

}  // namespace

void Regex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  DS_ASSIGN_OR_RETURN(const std::string translated, TranslateOnigurumaPattern(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    return InvalidArgumentError("the pattern '" + std::string(pattern) +
                                "' is not understood: " + ErrorText(error));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it, the interpreter runs the pattern
  return Regex(code);
}

// An empty match directly after a match does not count, as in the `onig` crate's find_iter.
Status Regex::FindMatches(std::string_view text, std::vector<Match>* matches) const {
  matches->clear();
  const auto size = static_cast<std::uint32_t>(text.size());
  if (text.empty()) {
    matches->push_back({0, 0, false});
    return OkStatus();
  }
  Search search;
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(search.data);
  std::uint32_t covered = 0;
  bool any = false;
  for (std::size_t start = 0; start <= text.size();) {
    const int result = search.Run(code_.get(), text, start);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      return ResourceExhaustedError("a pattern of the tokenizer cannot be matched: " +
                                    ErrorText(result));
    }
    const auto begin = static_cast<std::uint32_t>(found[0]);
    const auto end = static_cast<std::uint32_t>(found[1]);
    if (begin == end && any && begin == covered) {
      start += start < text.size() ? Utf8Length(text[start]) : 1;
      continue;
    }
    if (covered != begin) matches->push_back({covered, begin, false});
    matches->push_back({begin, end, true});
    covered = end;
    any = true;
    start = end;
  }
  if (covered != size) matches->push_back({covered, size, false});
  return OkStatus();
}

}  // namespace ds::tokenizer
