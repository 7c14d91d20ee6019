#pragma once

// Model, data and config of a training job, checked on the user's terminal before anything starts.
// Missing, empty or contradictory inputs are errors with their location and a fix.
//
// Thread-safe; no shared state.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/train/share_folder.h"
#include "cli/train/train_flags.h"
#include "runtime/base/status.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/train_job.h"

namespace ds::cli {

struct TrainInputs {
  config::TrainJob job;
  nlohmann::ordered_json resolved_config;  // from config::ToResolvedConfigJson
  std::vector<std::string> notices;        // built-in inputs in use, config warnings
  bool demo = false;                       // the built-in model trains on the built-in data
  config::DsConfig config;                 // the resolved config
  config::DataEfficiency data_efficiency;  // part of the resolved config
  bool allow_overcommit = false;
  std::string own_output;  // the --save_hf folder of the resumed run
};

// Checks that no given flag requires a feature that the job lacks: adapters, pipeline stages or
// sequence parallelism. `stage_flag` and `sequence_flag` are such flags as spelled by the user,
// null if not given.
struct DegreeFlags {
  const char* stage_flag = nullptr;
  const char* sequence_flag = nullptr;
};
Status CheckDegreeFlags(const DegreeFlags& flags, const config::ParallelConfig& degrees);
Status CheckAdapterFlags(const config::TrainJob& job);
Status CheckChunkFlags(const config::TrainJob& job);

// Collects the inputs that `flags` select. Missing ones default to the shipped demo.
StatusOr<TrainInputs> GatherTrainInputs(const TrainFlags& flags, const ShareFolder& share,
                                        int world_size);

// Applies the given flags to `job` of an earlier run and checks the result again.
StatusOr<TrainInputs> OverrideTrainInputs(const config::TrainJob& job, const TrainFlags& flags,
                                          const ShareFolder& share, int world_size);

}  // namespace ds::cli
