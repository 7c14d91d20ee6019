#include "cli/train/train_session.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/session/job_description.h"
#include "cli/session/job_session.h"
#include "cli/train/train_program.h"
#include "runtime/checkpoint/format/latest.h"

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

StatusOr<int> RunTraining(JobPlan plan, TrainInputs inputs,
                          const std::vector<std::string>& command_line,
                          std::unique_ptr<RunDirectory> run_directory) {
  inputs.job.checkpoint_dir = run_directory->checkpoints().string();
  inputs.job.device = DeviceName(plan.flags.device);
  plan.built_in = true;
  plan.trains = true;
  plan.total_steps = inputs.job.steps;
  plan.notices.insert(plan.notices.end(), inputs.notices.begin(), inputs.notices.end());
  if (inputs.demo) plan.closing_lines = NextCommands(ShownPath(command_line.at(0)));
  plan.first_generation = run_directory->NextGeneration();
  // The logs that generations are counted by may have been removed; the checkpoints count, too.
  if (const auto latest = checkpoint::ReadLatest(run_directory->checkpoints())) {
    const auto next = static_cast<int>(latest->generation) + 1;
    plan.first_generation = std::max(plan.first_generation, next);
  }

  nlohmann::ordered_json job = DescribeJob("train", plan, command_line);
  job["train"] = nlohmann::ordered_json::parse(config::ToJson(inputs.job));
  DS_RETURN_IF_ERROR(MakeDirectories(run_directory->checkpoints()));
  DS_RETURN_IF_ERROR(run_directory->WriteJob(job, Durability::kDurable));
  DS_RETURN_IF_ERROR(run_directory->WriteResolvedConfig(inputs.resolved_config));
  DS_RETURN_IF_ERROR(run_directory->RemoveVerdict());
  return RunJob(plan, TrainProgram(inputs.job, plan.first_generation), run_directory.get());
}

}  // namespace ds::cli
