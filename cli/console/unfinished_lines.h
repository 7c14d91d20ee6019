#pragma once

// UnfinishedLines holds lines that ranks have begun and not ended: a prompt, a progress bar, or a
// line partly in the program's buffer.
//
// It holds them until they end, so that the user gets complete lines. On a terminal they are shown
// meanwhile (console.h), and text redrawn with \r replaces the previous text, as on a terminal of
// the rank's own. Elsewhere lines are held, except rank 0's while the user can answer it.
//
// Pure. Not thread-safe.

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
  bool prompts = false;  // rank 0 reads the user's input, and no terminal shows its prompt
};

class UnfinishedLines {
 public:
  explicit UnfinishedLines(const LineStyle& style) : style_(style) {}

  // Leaves the finished lines in `chunk`, with the held beginning prepended, and keeps the
  // unfinished rest. `partial`: the chunk ends inside a line.
  void Add(OutputChunk* chunk, bool partial);

  // Return and remove the held text of a rank that has ended, or of all ranks, as lines.
  std::vector<OutputChunk> TakeRank(int rank);
  std::vector<OutputChunk> TakeAll();

  // Returns the held lines that a terminal shows, highest rank first, so that the cursor ends after
  // the line of rank 0.
  std::vector<const OutputChunk*> Shown() const;

 private:
  bool Redraws(const OutputChunk& chunk) const {
    return chunk.is_stderr ? style_.redraws_err : style_.redraws_out;
  }

  const LineStyle style_;
  std::map<std::pair<int, bool>, OutputChunk> held_;  // by rank and stream; never empty
};

// Returns the part of `line` that a terminal still shows: the text after its last \r. A \r at the
// very end only moves the cursor.
std::string_view LastDrawn(std::string_view line);

// Formats `line` as one row of a terminal with `columns` columns. Drops colour and cursor
// sequences, escapes other control characters, and cuts off the end.
std::string FitRow(std::string_view line, int columns);

}  // namespace ds::cli
