#pragma once

// LineCollapser: identical lines of many ranks become one.
//
// Lines wait a moment; a line that another rank has just printed, letter for letter on the same
// stream, joins that one. Nothing is ever dropped or reordered within a rank, and a rank's own
// repetitions stay separate lines.
//
// Pure; its time is the events'. Threads: one at a time.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace ds::cli {

struct CollapsedLine {
  std::string text;  // without its end of line
  bool is_stderr = false;
  std::vector<int> ranks;  // in the order of arrival; at least one
  std::string host;        // of the first
  std::int64_t unix_nanos = 0;
};

class LineCollapser {
 public:
  void Add(CollapsedLine line);

  // The lines that need not wait any longer at `unix_nanos`, oldest first.
  std::vector<CollapsedLine> TakeRipe(std::int64_t unix_nanos);
  // All lines that wait.
  std::vector<CollapsedLine> TakeAll();

 private:
  struct Waiting {
    CollapsedLine line;
    std::size_t hash;
  };
  std::vector<CollapsedLine> TakeFirst(std::size_t count);

  std::deque<Waiting> waiting_;
};

// "3@localhost: text" for one rank, "[0-2,5] text (x4)" for many; with its end of line.
std::string FormatLine(const CollapsedLine& line);

}  // namespace ds::cli
