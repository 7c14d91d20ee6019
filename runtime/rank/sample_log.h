#pragma once

// SampleLog: logs the samples on which a rank trains. With DSRUN_SAMPLE_LOG=FOLDER in its
// environment each rank appends a line per micro-batch to FOLDER/rank-N.jsonl,
// {"step","place","samples":[...]}: its step, its first position in the training stream
// (data/loader.h), and the numbers of its samples (of a blend [source, sample]).
//
// A line is written before the batch is used. A step that failed and is repeated by the restarted
// job therefore has lines of both attempts.

#include <cstdint>
#include <optional>

#include "runtime/base/files.h"
#include "runtime/base/status.h"
#include "runtime/data/loader_options.h"

namespace ds::rank {

class SampleLog {
 public:
  // Opens the file; without the variable the log writes nothing. Fails if the file cannot be
  // opened.
  static StatusOr<SampleLog> Open(int rank, bool is_blend);
  Status Write(std::int64_t step, const data::Batch& batch);

 private:
  std::optional<AppendFile> file_;
  bool is_blend_ = false;
};

}  // namespace ds::rank
