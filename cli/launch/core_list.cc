#include "cli/launch/core_list.h"

#include <optional>

#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

// Far above the kernel's largest CPU number. It limits the memory for lists like "0-999999999".
constexpr int kMaxCore = 65535;

std::optional<int> ParseCore(std::string_view digits) {
  const std::optional<int> value = ParseNumber<int>(digits);
  if (!value.has_value() || *value < 0 || *value > kMaxCore) return std::nullopt;
  return value;
}

Status BadPart(std::string_view part, const std::string& why) {
  return InvalidArgumentError("core list: '" + std::string(part) + "' " + why);
}

Status AddPart(std::string_view part, std::vector<int>* cores) {
  const std::size_t dash = part.find('-', 1);
  const std::optional<int> first = ParseCore(part.substr(0, dash));
  const std::optional<int> last =
      dash == std::string_view::npos ? first : ParseCore(part.substr(dash + 1));
  if (!first.has_value() || !last.has_value()) {
    return BadPart(part, "is neither a core number nor a range like 0-3");
  }
  if (*last < *first) return BadPart(part, "ends before it starts");
  if (!cores->empty() && *first <= cores->back()) {
    return BadPart(part, "is not above the entry before it; cores must ascend");
  }
  for (int core = *first; core <= *last; ++core) cores->push_back(core);
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<int>> ParseCoreList(std::string_view text) {
  std::vector<int> cores;
  for (std::size_t start = 0;;) {
    const std::size_t comma = text.find(',', start);
    DS_RETURN_IF_ERROR(AddPart(text.substr(start, comma - start), &cores));
    if (comma == std::string_view::npos) return cores;
    start = comma + 1;
  }
}

StatusOr<std::vector<std::vector<int>>> DivideCores(const std::vector<int>& cores, int ranks) {
  const int count = static_cast<int>(cores.size());
  if (ranks > count) {
    return InvalidArgumentError("--bind_cores_to_rank: " + std::to_string(ranks) +
                                " ranks cannot share " + std::to_string(count) +
                                (count == 1 ? " core" : " cores"));
  }
  std::vector<std::vector<int>> shares;
  auto next = cores.begin();
  for (int rank = 0; rank < ranks; ++rank) {
    const int share = count / ranks + (rank < count % ranks ? 1 : 0);
    shares.emplace_back(next, next + share);
    next += share;
  }
  return shares;
}

}  // namespace ds::cli
