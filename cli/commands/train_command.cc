#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <utility>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/job/job_plan.h"
#include "cli/train/train_inputs.h"
#include "cli/train/train_session.h"
#include "runtime/base/clock.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {

StatusOr<int> TrainCommand(const Invocation& invocation) {
  LaunchFlags launch = invocation.launch;
  TrainFlags flags;
  FlagParser parser("[launch flags] train [flags]",
                    "Train a model on every rank. Without flags: a small built-in demo.");
  AddTrainFlags(parser.app(), &flags);
  AddLaunchFlags(&parser, &launch);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::Rest::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_RETURN_IF_ERROR(CheckLaunchFlags(launch));

  DS_ASSIGN_OR_RETURN(JobRequest request,
                      GatherJobRequest(MakeJobId("train", Clock::System().UnixNanos()), launch,
                                       invocation.command_line));
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  DS_ASSIGN_OR_RETURN(TrainInputs inputs,
                      GatherTrainInputs(flags, share, request.launch.world.world_size()));
  DS_ASSIGN_OR_RETURN(std::unique_ptr<RunDirectory> run_directory,
                      RunDirectory::Create(ChooseRunDirectory(launch, request.job_id)));
  return RunTraining(std::move(request), std::move(inputs), invocation.command_line,
                     std::move(run_directory));
}

}  // namespace ds::cli
