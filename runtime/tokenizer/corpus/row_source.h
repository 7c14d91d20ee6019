#pragma once

// RowSource: the rows of one file as JSON objects, a line each, in batches.
//
// Threads: one.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::tokenizer {

struct Rows {
  std::string lines;
  std::uint64_t first = 1;            // the number of the first line, from 1
  std::vector<std::uint64_t> places;  // the number of each line; empty: they are consecutive
};

class RowSource {
 public:
  virtual ~RowSource() = default;

  // The next rows; nothing after the last. Errors name the file and the line.
  virtual StatusOr<std::optional<Rows>> Next() = 0;

  // Counts the bytes of the file that have been read.
  virtual std::uint64_t position() const = 0;
};

// A batch is closed when it has this many bytes.
inline constexpr std::size_t kBatchBytes = std::size_t{4} << 20;
// A longer row is taken for a file of another kind.
inline constexpr std::size_t kLongestRow = std::size_t{1} << 30;

}  // namespace ds::tokenizer
