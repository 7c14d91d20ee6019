#pragma once

// Model, data and config of a training job, checked on the user's terminal before anything is
// started: what is missing, empty or contradictory is an error that says where and what to do.
//
// Threads: any; nothing is shared.

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
  nlohmann::ordered_json resolved_config;  // config::ToResolvedConfigJson
  std::vector<std::string> notices;        // built-in inputs in use, warnings of the config
  bool demo = false;                       // the built-in model trains on the built-in data
  config::DsConfig config;                 // in force
  config::DataEfficiency data_efficiency;  // as `config`
  bool allow_overcommit = false;
  std::string own_output;  // the folder of --save_hf of the run that is resumed
};

// OK where no flag is given that describes what the job has not: adapters, stages, ranks with parts
// of a sample. `stage_flag` and `sequence_flag` are such flags as they are spelt, null where none
// is given.
struct DegreeFlags {
  const char* stage_flag = nullptr;
  const char* sequence_flag = nullptr;
};
Status CheckDegreeFlags(const DegreeFlags& flags, const config::ParallelConfig& degrees);
Status CheckAdapterFlags(const config::TrainJob& job);
Status CheckPortionFlags(const config::TrainJob& job);

// Gathers what `flags` ask for, the shipped demo where they are silent.
StatusOr<TrainInputs> GatherTrainInputs(const TrainFlags& flags, const ShareFolder& share,
                                        int world_size);

// `job` of an earlier run with the given flags laid over it, checked again.
StatusOr<TrainInputs> OverrideTrainInputs(const config::TrainJob& job, const TrainFlags& flags,
                                          const ShareFolder& share, int world_size);

}  // namespace ds::cli
