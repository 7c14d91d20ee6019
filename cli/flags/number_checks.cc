#include "cli/flags/number_checks.h"

#include <fmt/format.h>

#include <CLI/Error.hpp>
#include <CLI/Validators.hpp>
#include <cmath>
#include <optional>
#include <string>

#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

// Without CLI11's own remarks in the help.
template <typename Fits>
CLI::Validator Check(Fits fits, const std::string& expected) {
  return CLI::Validator(
      [fits, expected](const std::string& text) {
        return fits(text) ? std::string() : fmt::format("{} is not {}", text, expected);
      },
      "");
}

template <typename InRange>
CLI::Validator CheckNumber(InRange in_range, const std::string& expected) {
  return Check(
      [in_range](const std::string& text) {
        const auto number = ParseNumber<double>(text);
        return number && std::isfinite(*number) && in_range(*number);
      },
      expected);
}

// CLI11 would read 010 as 8.
bool LooksOctal(const std::string& text) {
  const std::size_t first = text.find_first_not_of('-');
  return first + 1 < text.size() && text[first] == '0';
}

}  // namespace

CLI::Validator WholeNumber(std::int64_t low, std::int64_t high) {
  std::string expected = "a whole number";
  if (high != std::numeric_limits<std::int64_t>::max()) {
    expected += fmt::format(" from {} to {}", low, high);
  } else if (low != std::numeric_limits<std::int64_t>::min()) {
    expected += fmt::format(" of at least {}", low);
  }
  return Check(
      [low, high](const std::string& text) {
        const auto number = ParseNumber<std::int64_t>(text);
        return number && !LooksOctal(text) && *number >= low && *number <= high;
      },
      expected);
}

CLI::Validator AnyWholeNumber() { return WholeNumber(std::numeric_limits<std::int64_t>::min()); }

CLI::Validator FiniteNumber() {
  return CheckNumber([](double) { return true; }, "a finite number");
}

CLI::Validator NumberBetween(double low, double high) {
  return CheckNumber([low, high](double number) { return number >= low && number <= high; },
                     fmt::format("a number from {} to {}", low, high));
}

CLI::Validator PositiveNumber() {
  return CheckNumber([](double number) { return number > 0.0; }, "a number above 0");
}

CLI::Validator PositiveFraction() {
  return CheckNumber([](double number) { return number > 0.0 && number <= 1.0; },
                     "a number above 0 and at most 1");
}

}  // namespace ds::cli
