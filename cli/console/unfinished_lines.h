#pragma once

// UnfinishedLines: the beginnings of lines that ranks have not ended yet: a prompt, a progress bar,
// a line whose rest is still in the program's buffer.
//
// They wait here for their rest, so that lines reach the user whole. On a terminal they are shown
// meanwhile (console.h), and what a rank redraws with \r replaces what it drew before, as it would
// on a terminal of its own. Where there is none, only what rank 0 has to say while it can be
// answered is not held back.
//
// Pure. Threads: one at a time.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/console/line_collapser.h"

namespace ds::cli {

struct LineStyle {
  bool redraws_out = false;  // standard output is a terminal
  bool redraws_err = false;
  bool prompts = false;  // rank 0 reads what the user types, and there is no terminal to show it on
};

class UnfinishedLines {
 public:
  explicit UnfinishedLines(const LineStyle& style) : style_(style) {}

  // Leaves in `chunk` the lines that have ended, the beginning of the first one put in front of
  // them, and keeps what has not. `partial`: the chunk ends inside a line.
  void Add(OutputChunk* chunk, bool partial);

  // Takes what there is of a rank that has ended, or of all, as lines.
  std::vector<OutputChunk> TakeOf(int rank);
  std::vector<OutputChunk> TakeAll();

  // A terminal shows these: the highest rank comes first, so that the cursor stands behind rank
  // 0's.
  std::vector<const OutputChunk*> Shown() const;

 private:
  bool Redraws(const OutputChunk& chunk) const {
    return chunk.is_stderr ? style_.redraws_err : style_.redraws_out;
  }

  const LineStyle style_;
  std::map<std::pair<int, bool>, OutputChunk> held_;  // by rank and stream; none is empty
};

// Cuts off what a terminal shows no more of `line` after its last \r; one at the very end has moved
// the cursor and nothing else.
std::string_view LastDrawn(std::string_view line);

// Makes one row of `line` for a terminal of so many columns: sequences that colour or move are left
// out, other control characters written out, the end is cut off.
std::string FitRow(std::string_view line, int columns);

}  // namespace ds::cli
