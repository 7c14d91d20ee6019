#pragma once

// RowSource reads the rows of one file as JSON objects, one per line, in batches.
//
// Not thread-safe.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace ds::tokenizer {

struct RowBatch {
  std::string lines;
  std::uint64_t first = 1;                  // number of the first line, from 1
  std::vector<std::uint64_t> line_numbers;  // number of each line; empty: they are consecutive
};

class RowSource {
 public:
  virtual ~RowSource() = default;

  // Returns the next rows; nothing after the last. Errors name the file and the line.
  virtual StatusOr<std::optional<RowBatch>> Next() = 0;

  // Returns the number of bytes of the file read so far.
  virtual std::uint64_t position() const = 0;
};

// A batch is closed once it has this many bytes.
inline constexpr std::size_t kBatchBytes = std::size_t{4} << 20;
// A longer row means that the file has another format, and is an error.
inline constexpr std::size_t kLongestRow = std::size_t{1} << 30;

}  // namespace ds::tokenizer
