#pragma once

// Checks flags that are numbers: they accept plain decimal notation, finite, in range. CLI11 by
// itself takes nan and inf, reads "010" as 8, and cuts what does not fit down to what does.
//
// Usage: app.add_option("--steps", steps)->check(WholeNumber(1)).

#include <cstdint>
#include <limits>

namespace CLI {
class Validator;
}

namespace ds::cli {

inline constexpr int kMaxPort = 65535;

CLI::Validator WholeNumber(std::int64_t low,
                           std::int64_t high = std::numeric_limits<std::int64_t>::max());
CLI::Validator AnyWholeNumber();
CLI::Validator FiniteNumber();
CLI::Validator PositiveNumber();
CLI::Validator NumberBetween(double low, double high);  // both included
CLI::Validator PositiveFraction();                      // above 0, at most 1

}  // namespace ds::cli
