#pragma once

// JudgeTraining: what of a gathered job can be known to fail before a rank starts, and what its
// ranks will hold. `train`, `resume` and `check` ask the same, so that `check` says what `train`
// would refuse, by the functions that ranks call. Reads the model's config.json, the headers of its
// weights and the begin of the data (plan/data/try_data.h); loads no weights and starts nothing.
//
// Threads: any; nothing is shared.

#include <optional>
#include <string>
#include <vector>

#include "cli/job/job_plan.h"
#include "cli/train/train_inputs.h"
#include "cli/train/train_program.h"
#include "runtime/base/status.h"

namespace ds::cli {

// These say where the ranks are.
struct RankCounts {
  int all = 1;
  int of_host = 1;  // of the host that has the most
  // All are, and their folders can be looked at.
  bool on_this_host = false;
};

struct JudgedTraining {
  std::optional<PredictedJob> predicted;  // absent: the memory of this model is not known
  MemoryNeed memory;
  std::vector<std::string> notices;
};

// Refuses what ranks would refuse, in their words: a model that is not built, targets and patterns
// that name nothing of it, choices that exclude one another, folders that cannot be written, and
// data that is not usable.
StatusOr<JudgedTraining> JudgeTraining(const TrainInputs& inputs, const RankCounts& ranks,
                                       const ShareFolder& share);

}  // namespace ds::cli
