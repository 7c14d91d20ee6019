#pragma once

// JudgeTraining finds errors of a training job before a rank starts, and predicts the memory of its
// ranks. `train`, `resume` and `check` call it, so `check` reports the errors that `train` would.
// It uses the same functions as the ranks. It reads the model's config.json, the headers of its
// weights and the start of the data (plan/data/try_data.h). It loads no weights and starts nothing.
//
// Thread-safe; no shared state.

#include <optional>
#include <string>
#include <vector>

#include "cli/job/job_plan.h"
#include "cli/train/train_inputs.h"
#include "cli/train/train_program.h"
#include "runtime/base/status.h"

namespace ds::cli {

// The numbers of ranks and their location.
struct RankCounts {
  int all = 1;
  int of_host = 1;  // on the host with the most ranks
  // True if all ranks run on this host, so their folders can be checked.
  bool on_this_host = false;
};

struct JudgedTraining {
  std::optional<PredictedJob> predicted;  // absent if the model's memory cannot be predicted
  MemoryNeed memory;
  std::vector<std::string> notices;
};

// Rejects the errors that ranks would report, with the same messages: an unsupported model, targets
// and patterns that match nothing in it, mutually exclusive options, folders that cannot be
// written, and unusable data.
StatusOr<JudgedTraining> JudgeTraining(const TrainInputs& inputs, const RankCounts& ranks,
                                       const ShareFolder& share);

}  // namespace ds::cli
