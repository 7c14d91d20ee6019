#include "cli/flags/log_filter.h"

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

std::optional<int> ParseRank(std::string_view digits) {
  const std::optional<int> value = ParseNumber<int>(digits);
  return value.value_or(-1) < 0 ? std::nullopt : value;
}

std::optional<std::pair<int, int>> ParseRange(std::string_view part) {
  const std::size_t dash = part.find('-');
  const std::optional<int> first = ParseRank(part.substr(0, dash));
  const std::optional<int> last =
      dash == std::string_view::npos ? first : ParseRank(part.substr(dash + 1));
  if (!first.has_value() || !last.has_value() || *last < *first) return std::nullopt;
  return std::pair(*first, *last);
}

}  // namespace

StatusOr<LogFilter> LogFilter::Parse(std::string_view log_ranks, bool errors_only) {
  LogFilter filter;
  filter.errors_only_ = errors_only;
  filter.all_ranks_ = log_ranks.empty() || log_ranks == "all";
  if (filter.all_ranks_) return filter;
  for (std::size_t start = 0; start <= log_ranks.size();) {
    const std::size_t comma = std::min(log_ranks.find(',', start), log_ranks.size());
    const std::string_view part = log_ranks.substr(start, comma - start);
    const std::optional<std::pair<int, int>> range = ParseRange(part);
    if (!range.has_value()) {
      return InvalidArgumentError("--log_ranks: '" + std::string(part) +
                                  "' is neither a rank nor a range like 2-3; or write all");
    }
    filter.ranges_.push_back(*range);
    start = comma + 1;
  }
  return filter;
}

bool LogFilter::Shows(int rank, bool is_stderr) const {
  if (errors_only_ && !is_stderr) return false;
  return all_ranks_ || std::any_of(ranges_.begin(), ranges_.end(), [rank](const auto& range) {
           return range.first <= rank && rank <= range.second;
         });
}

Status LogFilter::CheckRanks(int world_size) const {
  for (const auto& [first, last] : ranges_) {
    if (last < world_size) continue;
    return InvalidArgumentError("--log_ranks: there is no rank " + std::to_string(last) +
                                "; the job has " + std::to_string(world_size) +
                                (world_size == 1 ? " rank" : " ranks"));
  }
  return OkStatus();
}

}  // namespace ds::cli
