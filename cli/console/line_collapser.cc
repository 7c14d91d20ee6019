#include "cli/console/line_collapser.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace ds::cli {
namespace {

// How long and how many lines wait for others like them.
constexpr std::int64_t kRipeAfterNanos = 100'000'000;
constexpr std::size_t kMaxWaiting = 256;

bool Holds(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// "0-2,5" of any list of numbers.
std::string ShowRanks(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

void LineCollapser::Add(CollapsedLine line) {
  const int rank = line.ranks.front();
  const std::size_t hash = std::hash<std::string_view>()(line.text);
  // Only lines behind the rank's own last one: else its lines would change their order.
  std::size_t start = waiting_.size();
  while (start > 0 && !Holds(waiting_[start - 1].line.ranks, rank)) --start;
  for (std::size_t i = start; i < waiting_.size(); ++i) {
    CollapsedLine& other = waiting_[i].line;
    if (waiting_[i].hash == hash && other.is_stderr == line.is_stderr && other.text == line.text) {
      other.ranks.push_back(rank);
      return;
    }
  }
  waiting_.push_back({std::move(line), hash});
}

std::vector<CollapsedLine> LineCollapser::TakeRipe(std::int64_t unix_nanos) {
  std::size_t count = waiting_.size() > kMaxWaiting ? waiting_.size() - kMaxWaiting : 0;
  while (count < waiting_.size() &&
         waiting_[count].line.unix_nanos + kRipeAfterNanos <= unix_nanos) {
    ++count;
  }
  return TakeFirst(count);
}

std::vector<CollapsedLine> LineCollapser::TakeAll() { return TakeFirst(waiting_.size()); }

std::vector<CollapsedLine> LineCollapser::TakeFirst(std::size_t count) {
  std::vector<CollapsedLine> taken;
  taken.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    taken.push_back(std::move(waiting_.front().line));
    waiting_.pop_front();
  }
  return taken;
}

std::string FormatLine(const CollapsedLine& line) {
  if (line.ranks.size() == 1) {
    return std::to_string(line.ranks[0]) + "@" + line.host + ": " + line.text + "\n";
  }
  return "[" + ShowRanks(line.ranks) + "] " + line.text + " (x" +
         std::to_string(line.ranks.size()) + ")\n";
}

}  // namespace ds::cli
