#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/plan/model/module_pattern.h"

#include <pcre2.h>

namespace ds::models {
namespace {

constexpr std::uint32_t kMostSteps = 1'000'000;

std::string DescribePcreError(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

StatusOr<ModulePattern> ModulePattern::Compile(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   kOptions | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    return InvalidArgumentError("the pattern '" + pattern +
                                "' is not understood: " + DescribePcreError(error));
  }
  return ModulePattern(std::shared_ptr<pcre2_code>(code, pcre2_code_free));
}

StatusOr<bool> ModulePattern::Matches(std::string_view name) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(context.get(), kMostSteps);
  const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(),
                                0, 0, data.get(), context.get());
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return ResourceExhaustedError("the pattern cannot be matched with '" + std::string(name) +
                                "': " + DescribePcreError(found));
}

}  // namespace ds::models
