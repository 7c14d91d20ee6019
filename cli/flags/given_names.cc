#include "cli/flags/given_names.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>

#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

// Compares numbers by value: 1e-4 equals 0.0001.
bool AreAlike(const std::string& one, const std::string& other) {
  if (one == other) return true;
  const auto number = ParseNumber<double>(one);
  return number && number == ParseNumber<double>(other);
}

// Returns the value of a flag; "true" for a switch without one.
std::string FindValue(const std::string& spelt, const std::optional<std::string>& next) {
  const std::size_t equals = spelt.find('=');
  return equals == std::string::npos ? next.value_or("true") : spelt.substr(equals + 1);
}

}  // namespace

std::string FlagNameOf(const std::string& word) {
  const std::size_t begin = word.find_first_not_of('-');
  std::string name = word.substr(begin, word.find('=') - begin);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Status GivenNames::Add(const CLI::Option& option, const std::string& typed,
                       const std::string& spelt, const std::optional<std::string>& next) {
  const Given now{FlagNameOf(typed), next ? typed + " " + *next : typed, FindValue(spelt, next)};
  const bool is_switch = option.get_expected_max() == 0;
  const bool is_list =
      !is_switch && option.get_multi_option_policy() != CLI::MultiOptionPolicy::TakeLast;
  if (is_list || now.value == "auto") return OkStatus();
  const auto [found, is_new] = given_.emplace(&option, now);
  const Given& before = found->second;
  if (!is_new && before.name != now.name && !AreAlike(before.value, now.value)) {
    return InvalidArgumentError(before.shown + " and " + now.shown +
                                " are one flag with two values: leave one of them out");
  }
  found->second = now;
  return OkStatus();
}

}  // namespace ds::cli
