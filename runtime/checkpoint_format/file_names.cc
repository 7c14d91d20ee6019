#include "runtime/checkpoint_format/file_names.h"

#include <fmt/format.h>

#include "runtime/base/parse_number.h"

namespace ds::checkpoint {
namespace {

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kUnfinishedInfix = ".tmp-";
constexpr int kHexadecimal = 16;

}  // namespace

std::string StepDirectoryName(std::int64_t step) { return fmt::format("{}{}", kStepPrefix, step); }

std::optional<std::int64_t> StepOfDirectoryName(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = ParseNumber<std::int64_t>(name.substr(kStepPrefix.size()));
  // Accept only one spelling per step: the name made from the number must equal the input.
  if (step.value_or(-1) < 0 || StepDirectoryName(*step) != name) return std::nullopt;
  return step;
}

std::optional<std::int64_t> StepOfReplacedName(std::string_view name) {
  constexpr std::string_view kSuffix = kReplacedSuffix;
  if (!name.ends_with(kSuffix)) return std::nullopt;
  return StepOfDirectoryName(name.substr(0, name.size() - kSuffix.size()));
}

std::string UnfinishedDirectoryName(const UnfinishedName& name) {
  return fmt::format("{}{}{}-{:016x}", StepDirectoryName(name.step), kUnfinishedInfix,
                     name.generation, name.nonce);
}

std::optional<UnfinishedName> ParseUnfinishedName(std::string_view name) {
  const std::size_t infix = name.find(kUnfinishedInfix);
  const std::size_t dash = name.rfind('-');
  if (infix == std::string_view::npos) return std::nullopt;
  const std::size_t number = infix + kUnfinishedInfix.size();
  if (dash < number) return std::nullopt;
  const auto step = StepOfDirectoryName(name.substr(0, infix));
  const auto generation = ParseNumber<std::int64_t>(name.substr(number, dash - number));
  const auto nonce = ParseNumber<std::uint64_t>(name.substr(dash + 1), kHexadecimal);
  if (!step || !generation || !nonce) return std::nullopt;
  const UnfinishedName parsed{*step, *generation, *nonce};
  return UnfinishedDirectoryName(parsed) == name ? std::optional(parsed) : std::nullopt;
}

std::string ShardFileName(int rank) { return fmt::format("rank-{:05d}.bin", rank); }

bool IsCheckpointFile(std::string_view name) {
  constexpr std::string_view kShardStart = "rank-", kShardEnd = ".bin";
  if (name == kManifestFile || name == kWriterFile || name == kClientStateFile) return true;
  if (name.starts_with(kShardStart) && name.ends_with(kShardEnd)) {
    const std::string_view digits = name.substr(kShardStart.size());
    const auto rank = ParseNumber<int>(digits.substr(0, digits.size() - kShardEnd.size()));
    return rank && ShardFileName(*rank) == name;
  }
  return IsDraftOf(kManifestFile, name) || name.starts_with(".nfs") ||
         name.starts_with(".fuse_hidden");
}

bool IsDraftOf(std::string_view file, std::string_view name) {
  constexpr std::size_t kDigits = 16;
  if (name.size() != file.size() + 1 + kDigits || !name.starts_with(file)) return false;
  return name[file.size()] == '.' &&
         name.find_first_not_of("0123456789abcdef", file.size() + 1) == std::string_view::npos;
}

}  // namespace ds::checkpoint
