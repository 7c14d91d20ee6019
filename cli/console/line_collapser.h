#pragma once

// LineCollapser: cuts the ranks' output into lines, tags them, and makes one line of identical
// lines of many ranks.
//
// Lines wait a moment; a line that another rank has just printed, letter for letter on the same
// stream, joins that one. Nothing is ever dropped or reordered within a rank, and a rank's own
// repetitions stay separate lines. Millions of lines a second pass through here, so nothing is
// allocated, hashed or copied per line but into the text that is shown.
//
// Pure; its time is the events', whose clocks may differ from host to host. Threads: one at a time.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ds::cli {

// Lines of one stream of one rank: each ends with \n, with \r\n, with a \r that no \n follows, or
// with the chunk.
struct OutputChunk {
  std::string text;
  bool is_stderr = false;
  int rank = 0;
  std::string host;
  std::int64_t unix_nanos = 0;
};

// Tagged lines, each with its \n, that go to one stream.
struct TaggedText {
  bool is_stderr = false;
  std::string text;
};

class LineCollapser {
 public:
  // With `timestamps` the time of its chunk stands in front of each line.
  explicit LineCollapser(bool timestamps = false) : timestamps_(timestamps) {}

  void Add(OutputChunk chunk);

  // The lines that need not wait any longer at `unix_nanos`, oldest first; neighbours of the same
  // stream are one text.
  std::vector<TaggedText> TakeRipe(std::int64_t unix_nanos);
  // Takes all lines that wait.
  std::vector<TaggedText> TakeAll();

 private:
  struct TaggedChunk {
    OutputChunk output;
    std::string stamp;  // "2026-11-22T01:02:03.456Z ", or ""
    std::string tag;    // ... and "3@localhost: "
  };
  struct Waiting {
    std::string_view text;  // into chunks_, without its end of line
    const TaggedChunk* chunk;
    std::vector<int> other_ranks;  // that said the same
  };
  // The place in waiting_ behind the last line that `rank` has a part in.
  std::size_t FindPlaceBehind(int rank) const;
  // Adds a line of a rank whose last line is before place `behind`; returns the place behind it.
  std::size_t AddLine(std::string_view text, const TaggedChunk& chunk, std::size_t behind);
  std::vector<TaggedText> Take(std::size_t count);

  const bool timestamps_;
  std::deque<TaggedChunk> chunks_;  // that waiting_ points into, oldest first
  std::size_t chunk_bytes_ = 0;
  std::deque<Waiting> waiting_;
  std::uint64_t taken_ = 0;  // lines that have left waiting_: place + taken_ names a line for good
  std::unordered_map<int, std::uint64_t> behind_rank_;  // the name behind its last line
};

}  // namespace ds::cli
