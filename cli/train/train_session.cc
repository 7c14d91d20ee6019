#include "cli/train/train_session.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/job/job_description.h"
#include "cli/train/train_program.h"

namespace ds::cli {

StatusOr<int> RunTraining(JobSetup setup, TrainInputs inputs,
                          const std::vector<std::string>& command_line,
                          RunDirectory* run_directory) {
  inputs.job.checkpoint_dir = run_directory->checkpoints().string();
  inputs.job.device = DeviceName(setup.flags.device);
  setup.trains = true;
  setup.total_steps = inputs.job.steps;
  setup.notices.insert(setup.notices.end(), inputs.notices.begin(), inputs.notices.end());
  setup.program = TrainProgram(inputs.job, run_directory->NextGeneration());

  nlohmann::ordered_json job = DescribeJob("train", setup, command_line);
  job["train"] = nlohmann::ordered_json::parse(config::ToJson(inputs.job));
  setup.describe = [&]() -> Status {
    DS_RETURN_IF_ERROR(MakeDirectories(run_directory->checkpoints()));
    DS_RETURN_IF_ERROR(run_directory->WriteJob(job, Durability::kDurable));
    DS_RETURN_IF_ERROR(run_directory->WriteResolvedConfig(inputs.resolved_config));
    return run_directory->RemoveVerdict();
  };
  return RunJob(setup, run_directory);
}

}  // namespace ds::cli
