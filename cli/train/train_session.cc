#include "cli/train/train_session.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/session/job_description.h"
#include "cli/train/train_program.h"

namespace ds::cli {
namespace {

// The demo's last lines: `program` is dsrun as the user may type it.
std::vector<std::string> NextCommands(const std::string& program) {
  return {
      "three commands to try next:",
      "  " + program + " --num_gpus 2 train --data README.md --steps 20   # a text of your own",
      "  " + program + " --num_gpus 2 run -- env                          # any program of yours",
      "  " + program + " report                                           # this machine"};
}

}  // namespace

StatusOr<int> RunTraining(JobSetup setup, TrainInputs inputs,
                          const std::vector<std::string>& command_line,
                          std::unique_ptr<RunDirectory> run_directory) {
  inputs.job.checkpoint_dir = run_directory->checkpoints().string();
  inputs.job.device = DeviceName(setup.flags.device);
  setup.trains = true;
  setup.total_steps = inputs.job.steps;
  setup.notices.insert(setup.notices.end(), inputs.notices.begin(), inputs.notices.end());
  if (inputs.demo) setup.closing_lines = NextCommands(ShownPath(command_line.at(0)));
  setup.run_directory = run_directory->path();
  setup.first_generation = run_directory->NextGeneration();
  setup.program = TrainProgram(inputs.job, setup.first_generation);

  nlohmann::ordered_json job = DescribeJob("train", setup, command_line);
  job["train"] = nlohmann::ordered_json::parse(config::ToJson(inputs.job));
  setup.open = [&]() -> StatusOr<std::unique_ptr<RunDirectory>> {
    DS_RETURN_IF_ERROR(MakeDirectories(run_directory->checkpoints()));
    DS_RETURN_IF_ERROR(run_directory->WriteJob(job, Durability::kDurable));
    DS_RETURN_IF_ERROR(run_directory->WriteResolvedConfig(inputs.resolved_config));
    DS_RETURN_IF_ERROR(run_directory->RemoveVerdict());
    return std::move(run_directory);
  };
  return RunJob(setup);
}

}  // namespace ds::cli
