#include "cli/console/line_collapser.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "runtime/base/number_list.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

// Limits for held lines: their age, number and size.
constexpr std::uint64_t kRipeAfterNanos = 100'000'000;
constexpr std::size_t kMaxWaiting = 256;
constexpr std::size_t kMaxWaitingBytes = std::size_t{4} << 20;

void AppendShared(std::string_view line, int first_rank, const std::vector<int>& others,
                  std::string* text) {
  std::vector<int> ranks = others;
  ranks.push_back(first_rank);
  std::sort(ranks.begin(), ranks.end());
  text->append("[").append(FormatNumberList(ranks)).append("] ").append(line);
  text->append(" (x").append(std::to_string(ranks.size())).append(")\n");
}

// "2026-11-22T01:02:03.456Z "
std::string StampOf(std::int64_t unix_nanos) {
  const std::time_t seconds = unix_nanos / 1'000'000'000;
  const int millis = static_cast<int>(unix_nanos / 1'000'000 % 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 64> text{};
  const std::size_t end = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + end, text.size() - end, ".%03dZ ", std::max(0, millis));
  return text.data();
}

// The end of a line of `text` and the start of the next.
struct LineEnd {
  std::size_t end;
  std::size_t next;
};
LineEnd FindLineEnd(std::string_view text, bool has_returns) {
  const std::size_t newline = std::min(text.find('\n'), text.size());
  if (has_returns) {
    const std::size_t back = text.substr(0, newline).find('\r');
    if (back != std::string_view::npos) {
      return {back, back + (text.substr(back).starts_with("\r\n") ? 2 : 1)};
    }
  }
  return {newline, std::min(newline + 1, text.size())};
}

// Clocks of hosts differ. A line with a time far ahead must not hold back the lines after it.
bool IsRipe(std::int64_t line_nanos, std::int64_t now_nanos) {
  const auto [earlier, later] = std::minmax(line_nanos, now_nanos);
  // As unsigned numbers, so that the distance of any two clocks fits.
  return static_cast<std::uint64_t>(later) - static_cast<std::uint64_t>(earlier) >= kRipeAfterNanos;
}

}  // namespace

void LineCollapser::Add(OutputChunk chunk) {
  chunks_.push_back({std::move(chunk), "", ""});
  TaggedChunk& kept = chunks_.back();
  if (timestamps_) kept.stamp = StampOf(kept.output.unix_nanos);
  kept.tag =
      kept.stamp + std::to_string(kept.output.rank) + "@" + Printable(kept.output.host) + ": ";
  chunk_bytes_ += kept.output.text.size();
  std::string_view text = kept.output.text;
  const bool has_returns = text.find('\r') != std::string_view::npos;
  std::size_t after = FindPositionAfter(kept.output.rank);
  while (!text.empty()) {
    const LineEnd line = FindLineEnd(text, has_returns);
    after = AddLine(text.substr(0, line.end), kept, after);
    text.remove_prefix(line.next);
  }
  after_rank_[kept.output.rank] = taken_ + after;
}

std::size_t LineCollapser::FindPositionAfter(int rank) const {
  const auto found = after_rank_.find(rank);
  if (found == after_rank_.end() || found->second <= taken_) return 0;
  return static_cast<std::size_t>(found->second - taken_);
}

std::size_t LineCollapser::AddLine(std::string_view text, const TaggedChunk& chunk,
                                   std::size_t after) {
  // Searches only after the rank's own last line, so that its lines keep their order.
  for (std::size_t i = after; i < waiting_.size(); ++i) {
    PendingLine& other = waiting_[i];
    if (other.text == text && other.chunk->output.is_stderr == chunk.output.is_stderr) {
      other.other_ranks.push_back(chunk.output.rank);
      return i + 1;
    }
  }
  waiting_.push_back({text, &chunk, {}});
  return waiting_.size();
}

std::vector<TaggedText> LineCollapser::TakeRipe(std::int64_t unix_nanos) {
  std::size_t count = waiting_.size() > kMaxWaiting ? waiting_.size() - kMaxWaiting : 0;
  if (chunk_bytes_ > kMaxWaitingBytes) count = waiting_.size();
  while (count < waiting_.size() && IsRipe(waiting_[count].chunk->output.unix_nanos, unix_nanos)) {
    ++count;
  }
  return Take(count);
}

std::vector<TaggedText> LineCollapser::TakeAll() { return Take(waiting_.size()); }

std::vector<TaggedText> LineCollapser::Take(std::size_t count) {
  std::vector<TaggedText> taken;
  for (std::size_t i = 0; i < count; ++i) {
    const PendingLine& line = waiting_[i];
    const OutputChunk& output = line.chunk->output;
    if (taken.empty() || taken.back().is_stderr != output.is_stderr) {
      taken.push_back({output.is_stderr, ""});
    }
    std::string& text = taken.back().text;
    if (line.other_ranks.empty()) {
      text.append(line.chunk->tag).append(line.text).push_back('\n');
    } else {
      text.append(line.chunk->stamp);
      AppendShared(line.text, output.rank, line.other_ranks, &text);
    }
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
  taken_ += count;
  while (!chunks_.empty() && (waiting_.empty() || waiting_.front().chunk != &chunks_.front())) {
    chunk_bytes_ -= chunks_.front().output.text.size();
    chunks_.pop_front();
  }
  return taken;
}

}  // namespace ds::cli
