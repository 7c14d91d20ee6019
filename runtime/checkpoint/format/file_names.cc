#include "runtime/checkpoint/format/file_names.h"

#include <fmt/format.h>

#include "runtime/base/parse_number.h"

namespace ds::checkpoint {
namespace {

constexpr std::string_view kStepPrefix = "step-";

}  // namespace

std::string StepDirectoryName(std::int64_t step) { return fmt::format("{}{}", kStepPrefix, step); }

std::optional<std::int64_t> StepOfDirectoryName(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = ParseNumber<std::int64_t>(name.substr(kStepPrefix.size()));
  // One spelling per step: the name made from the number is the name that was read.
  if (step.value_or(-1) < 0 || StepDirectoryName(*step) != name) return std::nullopt;
  return step;
}

std::optional<std::int64_t> StepOfReplacedName(std::string_view name) {
  constexpr std::string_view kSuffix = kReplacedSuffix;
  if (!name.ends_with(kSuffix)) return std::nullopt;
  return StepOfDirectoryName(name.substr(0, name.size() - kSuffix.size()));
}

std::string ShardFileName(int rank) { return fmt::format("rank-{:05d}.bin", rank); }

}  // namespace ds::checkpoint
