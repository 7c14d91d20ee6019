#pragma once

// TryData reads the begin of a job's data as its ranks read all of it, and keeps nothing: dsrun
// asks before it starts ranks.
//
// Rows are parsed, written by the chat template and cut into tokens; ids of token files are held
// against the model's vocabulary; of data that is within the bounds, samples are counted. The
// errors are those of the ranks. Threads: any.

#include <cstdint>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/config/train_job.h"

namespace ds::data {

struct TryBounds {
  std::int64_t file_rows = 1'000;
  std::int64_t file_bytes = std::int64_t{4} << 20;
  std::int64_t all_bytes = std::int64_t{64} << 20;  // of rows and texts
  // Each file of tokens gives an equal share, from its begin on.
  std::int64_t all_tokens = std::int64_t{64} << 20;
};

// Tries the training's data, then that to evaluate on. Returns how many samples there are to train
// on, where all of the data is within the bounds. Requires paths and kinds of files that dsrun has
// found to fit.
StatusOr<std::optional<std::int64_t>> TryData(const config::TrainJob& job, std::int64_t vocabulary,
                                              const TryBounds& bounds = {});

}  // namespace ds::data
