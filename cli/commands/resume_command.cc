#include "cli/commands/resume_command.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/exit_codes.h"
#include "cli/flag_parser.h"
#include "cli/job/job_description.h"
#include "cli/job/job_session.h"
#include "cli/launch_flags_json.h"
#include "cli/report_error.h"
#include "cli/train/train_inputs.h"
#include "cli/train/train_program.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct ResumeFlags {
  std::string run;         // RUN_DIR or JOB
  std::string checkpoint;  // "" = the newest good one
  TrainFlags train;
  LaunchFlags launch;
  bool help_shown = false;
};

// Lays the command line over `launch`.
StatusOr<ResumeFlags> ParseFlags(const Invocation& invocation, const LaunchFlags& launch) {
  ResumeFlags flags{.launch = launch};
  FlagParser front("", "");
  AddLaunchFlags(front.app(), &flags.launch);
  DS_RETURN_IF_ERROR(front.Parse(invocation.launch_words, FlagParser::Rest::kRefused).status());
  FlagParser parser("[launch flags] resume RUN_DIR|JOB [flags]",
                    "Go on with a training run from its newest good checkpoint, with its own "
                    "settings where no flag says otherwise.");
  parser.app().add_option("RUN", flags.run, "the run directory, or the job's name under runs/");
  parser.app()
      .add_option(FlagNames("checkpoint"), flags.checkpoint, "go on from this one: step-N")
      ->type_name("NAME");
  AddTrainFlags(parser.app(), &flags.train);
  AddLaunchFlags(parser.app(), &flags.launch);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::Rest::kRefused));
  flags.help_shown = parsed.help_shown;
  return flags;
}

// Of the two ways to choose slots, the one given now replaces the other.
void DropReplacedSelection(const LaunchFlags& given, LaunchFlags* stored) {
  if (!given.include.empty() || !given.exclude.empty()) {
    stored->include.clear();
    stored->exclude.clear();
    stored->num_nodes.reset();
    stored->num_gpus.reset();
  }
  if (given.num_nodes.has_value() || given.num_gpus.has_value()) {
    stored->include.clear();
    stored->exclude.clear();
  }
}

fs::path FindRun(const std::string& run) {
  std::error_code error;
  if (fs::exists(run, error) || run.find('/') != std::string::npos) return run;
  return fs::path("runs") / run;
}

StatusOr<config::TrainJob> StoredTrainJob(const Json& job, const fs::path& run) {
  if (job.value("kind", "") != "train" || !job.contains("train") || !job.contains("launch")) {
    return InvalidArgumentError(run.string() +
                                " is the run of a program that keeps its own checkpoints; start it "
                                "again with the command_line of its job.json");
  }
  StatusOr<config::TrainJob> train = config::TrainJobFromJson(job.at("train").dump());
  if (!train.ok()) return train.status().WithContext((run / "job.json").string());
  return train;
}

// The job's steps are all done already.
bool NothingLeft(const config::TrainJob& job, const ResumePoint& point) {
  return job.steps > 0 && point.step >= job.steps;
}

int RefuseFinished(const config::TrainJob& job, const ResumePoint& point) {
  return ReportError(FailedPreconditionError("nothing to resume: " + point.directory + " has all " +
                                             std::to_string(job.steps) +
                                             " steps; give a larger total with --steps"),
                     kExitCheckpoint);
}

}  // namespace

StatusOr<int> ResumeCommand(const Invocation& invocation) {
  DS_ASSIGN_OR_RETURN(const ResumeFlags given, ParseFlags(invocation, LaunchFlags{}));
  if (given.help_shown) return kExitOk;
  if (given.run.empty()) return InvalidArgumentError("resume: no RUN_DIR or JOB given");
  if (!given.launch.run_dir.empty()) {
    return InvalidArgumentError("resume: --run_dir has no place here; a run goes on in its own");
  }
  const fs::path run = fs::absolute(FindRun(given.run)).lexically_normal();
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<RunDirectory> run_directory, RunDirectory::Open(run));
  DS_ASSIGN_OR_RETURN(Json job, run_directory->ReadJob());
  DS_ASSIGN_OR_RETURN(config::TrainJob train, StoredTrainJob(job, run));
  DS_ASSIGN_OR_RETURN(LaunchFlags launch, LaunchFlagsFromJson(job.at("launch")));
  DropReplacedSelection(given.launch, &launch);
  DS_ASSIGN_OR_RETURN(const ResumeFlags flags, ParseFlags(invocation, launch));
  DS_RETURN_IF_ERROR(CheckLaunchFlags(flags.launch));

  JobSetup setup{
      .job_id = job.value("job", run.filename().string()), .flags = flags.launch, .trains = true};
  DS_ASSIGN_OR_RETURN(setup.plan, PlanOnThisHost(flags.launch));
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  DS_ASSIGN_OR_RETURN(TrainInputs inputs, OverrideTrainInputs(train, flags.train, share,
                                                              setup.plan.world.world_size()));
  inputs.job.checkpoint_dir = run_directory->checkpoints().string();
  inputs.job.device = DeviceName(flags.launch.device);
  const StatusOr<ResumePoint> point =
      FindResumePoint(inputs.job.checkpoint_dir, flags.checkpoint, &inputs.notices);
  if (!point.ok()) {
    return ReportError(point.status().WithContext("cannot resume"), kExitCheckpoint);
  }
  if (NothingLeft(inputs.job, *point)) return RefuseFinished(inputs.job, *point);
  inputs.notices.push_back("going on from " + point->directory);
  inputs.job.resume_from = point->directory;
  setup.total_steps = inputs.job.steps;
  setup.notices = inputs.notices;
  setup.program = TrainProgram(inputs.job, run_directory->NextGeneration());

  job.update(DescribeJob("train", setup, invocation.command_line));
  job["train"] = Json::parse(config::ToJson(inputs.job));
  DS_RETURN_IF_ERROR(run_directory->WriteJob(job));
  DS_RETURN_IF_ERROR(run_directory->WriteResolvedConfig(inputs.resolved_config));
  DS_RETURN_IF_ERROR(run_directory->RemoveVerdict());
  return RunJob(setup, run_directory.get());
}

}  // namespace ds::cli
