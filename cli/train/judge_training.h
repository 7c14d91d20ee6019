#pragma once

// JudgeTraining: what of a gathered job can be known to fail before a rank starts, and what its
// ranks will hold. `train`, `resume` and `check` ask the same, so that `check` says what `train`
// would refuse. Reads the model's config.json; loads no weights and starts nothing.
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
};

struct JudgedTraining {
  std::optional<PredictedJob> predicted;  // absent: the memory of this model is not known
  MemoryNeed memory;
  std::vector<std::string> notices;
};

// InvalidArgument where ranks would not build the job's model: its family, or a value of its
// config.json, as they say it.
StatusOr<JudgedTraining> JudgeTraining(const TrainInputs& inputs, const RankCounts& ranks,
                                       const ShareFolder& share);

}  // namespace ds::cli
