#include "cli/flags/process_settings.h"

#include <algorithm>
#include <optional>

#include "runtime/base/parse_number.h"
#include "runtime/base/suggest.h"
#include "runtime/process/resource_limits.h"

namespace ds::cli {
namespace {

constexpr int kMaxUmask = 0777;

std::optional<std::uint64_t> ParseAmount(std::string_view text) {
  if (text == "unlimited" || text == "infinity") return kUnlimited;
  return ParseNumber<std::uint64_t>(text);
}

}  // namespace

StatusOr<ProcessLimit> ParseLimit(std::string_view word) {
  const std::string flag = "--ulimit " + std::string(word) + ": ";
  const std::size_t equals = word.find('=');
  const std::string name(word.substr(0, equals));
  if (!FindResourceNumber(name).has_value()) {
    return InvalidArgumentError(flag + "there is no limit '" + name + "'" +
                                DidYouMean(name, ListResourceNames()));
  }
  const std::string_view amounts = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  const std::size_t colon = amounts.find(':');
  const std::optional<std::uint64_t> soft = ParseAmount(amounts.substr(0, colon));
  const std::optional<std::uint64_t> hard =
      colon == std::string_view::npos ? soft : ParseAmount(amounts.substr(colon + 1));
  if (!soft.has_value() || !hard.has_value()) {
    return InvalidArgumentError(flag +
                                "expected NAME=SOFT or NAME=SOFT:HARD with numbers or "
                                "'unlimited'");
  }
  if (*soft > *hard) return InvalidArgumentError(flag + "the soft limit is above the hard one");
  return ProcessLimit{name, *soft, *hard};
}

StatusOr<int> ParseUmask(std::string_view word) {
  const std::optional<int> mask = ParseNumber<int>(word, 8);
  if (!mask.has_value() || *mask < 0 || *mask > kMaxUmask) {
    return InvalidArgumentError("--umask " + std::string(word) +
                                ": expected an octal number from 0 to 777");
  }
  return *mask;
}

StatusOr<std::uint64_t> ParseFileSize(std::string_view word) {
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t digits = std::min(word.find_first_not_of("0123456789"), word.size());
  const std::string_view unit = word.substr(digits);
  const std::size_t power = unit.empty() ? 0 : kUnits.find(unit) + 1;  // npos + 1 is 0
  const bool is_known = unit.empty() || (unit.size() == 1 && power > 0);
  const auto count = ParseNumber<std::uint64_t>(word.substr(0, digits));
  const std::size_t shift = 10 * power;
  if (!is_known || !count || *count == 0 || *count > (std::uint64_t{1} << 60 >> shift)) {
    return InvalidArgumentError("--log_max_size " + std::string(word) +
                                ": expected bytes, for example 100M, 2G or 1048576");
  }
  return *count << shift;
}

}  // namespace ds::cli
