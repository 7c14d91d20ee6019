#pragma once

// LineCollapser splits the ranks' output into lines, tags them, and merges identical lines of
// several ranks.
//
// Lines are held back briefly. A line joins an identical line that another rank has just printed on
// the same stream. Lines are never dropped or reordered within a rank, and repeated lines of one
// rank stay separate. Throughput reaches millions of lines a second, so a line is not allocated,
// hashed or copied on its own; it is copied once, into the output.
//
// Pure. Time comes from the events; clocks of hosts may differ. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ds::cli {

// Lines of one stream of one rank. Each ends with \n, with \r\n, with a \r not followed by \n, or
// at the end of the chunk.
struct OutputChunk {
  std::string text;
  bool is_stderr = false;
  int rank = 0;
  std::string host;
  std::int64_t unix_nanos = 0;
};

// Tagged lines for one stream, each with its \n.
struct TaggedText {
  bool is_stderr = false;
  std::string text;
};

class LineCollapser {
 public:
  // With `timestamps`, each line begins with the time of its chunk.
  explicit LineCollapser(bool timestamps = false) : timestamps_(timestamps) {}

  void Add(OutputChunk chunk);

  // Returns the lines that are due at `unix_nanos`, oldest first. Adjacent lines of the same stream
  // form one text.
  std::vector<TaggedText> TakeRipe(std::int64_t unix_nanos);
  // Returns all lines that are held back.
  std::vector<TaggedText> TakeAll();

 private:
  struct TaggedChunk {
    OutputChunk output;
    std::string stamp;  // "2026-11-22T01:02:03.456Z ", or ""
    std::string tag;    // the stamp and "3@localhost: "
  };
  struct PendingLine {
    std::string_view text;  // into chunks_, without its line ending
    const TaggedChunk* chunk;
    std::vector<int> other_ranks;  // ranks with the same line
  };
  // Returns the index in waiting_ after the last line of `rank`.
  std::size_t FindPositionAfter(int rank) const;
  // Adds a line of a rank. The rank's last line is before index `after`. Returns the index after
  // the new line.
  std::size_t AddLine(std::string_view text, const TaggedChunk& chunk, std::size_t after);
  std::vector<TaggedText> Take(std::size_t count);

  const bool timestamps_;
  std::deque<TaggedChunk> chunks_;  // referenced by waiting_, oldest first
  std::size_t chunk_bytes_ = 0;
  std::deque<PendingLine> waiting_;
  std::uint64_t taken_ = 0;  // removed lines; index + taken_ identifies a line
  std::unordered_map<int, std::uint64_t> after_rank_;  // identifier after its last line
};

}  // namespace ds::cli
