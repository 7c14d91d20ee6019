#pragma once

// LogIndex records the times at which parts of the rank logs were written, in
// logs/<generation>/index.jsonl:
//
//     {"unix_nanos":1763859600123456789,"rank":3,"stream":"out","offset":4096}
//
// means that the byte at this offset of rank-00003.out was read from the rank at that time, by the
// clock of its host. Data that follows within a millisecond has no row of its own.
//
// Not thread-safe.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/base/status.h"

namespace ds::cli {

class LogIndex {
 public:
  // Creates the file with the first row, in `folder`, which must exist by then.
  explicit LogIndex(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Records `bytes` more of a stream, read at `unix_nanos`. Buffers rows.
  Status Add(int rank, bool is_stderr, std::uint64_t bytes, std::int64_t unix_nanos);
  // Writes the buffered rows.
  Status Flush();

 private:
  struct Stream {
    std::uint64_t size = 0;
    std::optional<std::int64_t> last_row_nanos;
  };

  const std::filesystem::path folder_;
  std::optional<AppendFile> file_;
  std::map<std::pair<int, bool>, Stream> streams_;  // by rank and stream
  std::string rows_;
};

}  // namespace ds::cli
