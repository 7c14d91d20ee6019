#pragma once

// SampleLog: which samples a rank has trained on, for those who ask: with DSRUN_SAMPLE_LOG=FOLDER
// in its environment each rank appends a line per micro-batch to FOLDER/rank-N.jsonl,
// {"step","place","samples":[...]}: the step that it is of, its first place in the training stream
// (data/loader.h), and the numbers of its samples (of a blend [source, sample]).
//
// A line is written before the batch is trained on: of a step that a failure took, and that the
// restarted job does again, there are lines in both.

#include <cstdint>
#include <optional>

#include "runtime/base/files.h"
#include "runtime/base/status.h"
#include "runtime/data/loader_options.h"

namespace ds::rank {

class SampleLog {
 public:
  // Without the variable it writes nothing. Fails where the file cannot be opened.
  static StatusOr<SampleLog> Open(int rank, bool is_blend);
  Status Write(std::int64_t step, const data::Batch& batch);

 private:
  std::optional<AppendFile> file_;
  bool is_blend_ = false;
};

}  // namespace ds::rank
