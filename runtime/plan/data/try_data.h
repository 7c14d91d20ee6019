#pragma once

// TryData: reads the beginning of a job's data as its ranks read all of it, and keeps nothing.
// dsrun calls it before it starts ranks.
//
// Rows are parsed, rendered by the chat template and tokenized. Ids of token files are checked
// against the model's vocabulary. If the data is within the bounds, samples are counted. The errors
// are the ranks' own. Thread-safe.

#include <cstdint>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/config/train_job.h"

namespace ds::data {

struct TryBounds {
  std::int64_t file_rows = 1'000;
  std::int64_t file_bytes = std::int64_t{4} << 20;
  std::int64_t all_bytes = std::int64_t{64} << 20;  // of rows and texts
  // An equal share per file of tokens, from its beginning.
  std::int64_t all_tokens = std::int64_t{64} << 20;
};

// Tries the training data, then the evaluation data. Returns the number of training samples if all
// data is within the bounds, else nullopt. Requires paths and kinds of files that dsrun has already
// checked.
StatusOr<std::optional<std::int64_t>> TryData(const config::TrainJob& job, std::int64_t vocabulary,
                                              const TryBounds& bounds = {});

}  // namespace ds::data
