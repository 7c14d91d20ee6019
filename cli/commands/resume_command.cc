#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "cli/commands/command_table.h"
#include "cli/commands/foreign_train_flags.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/flags/launch_flags_json.h"
#include "cli/flags/report_error.h"
#include "cli/job/final_status.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/launch/environment.h"
#include "cli/train/train_inputs.h"
#include "cli/train/train_program.h"
#include "cli/train/train_session.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct ResumeFlags {
  std::string run;         // RUN_DIR or JOB
  std::string checkpoint;  // "" = the newest good one
  TrainFlags train;
  LaunchFlags launch;
  std::vector<std::string> given;  // names of the flags of this command line
  bool help_shown = false;
};

// Parses the command line over the values in `launch`.
StatusOr<ResumeFlags> ParseFlags(const Invocation& invocation, const LaunchFlags& launch) {
  ResumeFlags flags{.launch = launch};
  FlagParser front("", "");
  AddLaunchFlags(&front, &flags.launch);
  std::vector<std::string> words = invocation.command_line;  // empty for `dsrun help resume`
  if (!words.empty()) words.erase(words.begin());
  DS_RETURN_IF_ERROR(front.Parse(words, FlagParser::RemainingWords::kProgram).status());
  FlagParser parser("[launch flags] resume RUN_DIR|JOB [flags]",
                    "Resume a training run from its newest good checkpoint. Without a flag the "
                    "run's own setting applies; the defaults below are those of a new run.");
  parser.app().add_option("RUN", flags.run, "the run directory, or the job's name under runs/");
  parser.app()
      .add_option(FlagNames("checkpoint"), flags.checkpoint, "resume from this checkpoint: step-N")
      ->type_name("NAME");
  AddTrainFlags(parser.app(), &flags.train);
  AddLaunchFlags(&parser, &flags.launch);
  TakeForeignTrainFlags(&parser);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  flags.help_shown = parsed.help_shown;
  flags.given = front.Given();
  const std::vector<std::string> behind = parser.Given();
  flags.given.insert(flags.given.end(), behind.begin(), behind.end());
  return flags;
}

// The two ways to select slots are alternatives; the one given now replaces the stored one.
void DropReplacedSelection(const LaunchFlags& given, LaunchFlags* stored) {
  if (!given.include.empty() || !given.exclude.empty()) {
    stored->include.clear();
    stored->exclude.clear();
    stored->num_nodes.reset();
    stored->num_gpus.reset();
  }
  if (given.total_ranks.has_value()) stored->num_gpus.reset();
  if (given.num_gpus.has_value()) stored->total_ranks.reset();
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

// A training run as stored in its job.json.
struct StoredRun {
  std::unique_ptr<RunDirectory> directory;
  std::string job_id;
  LaunchFlags launch;
  StoredExports exports;  // the words of `launch`, and the names with values
  config::TrainJob train;
};

// Returns the string `name` of an object; "" if there is none.
std::string TextOf(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

StoredExports ReadExports(const Json& job, const LaunchFlags& launch) {
  StoredExports exports{.words = launch.exports, .had_values = std::nullopt};
  const Json::json_pointer had_values("/redacted/exports");
  if (job.contains(had_values) && job.at(had_values).is_array()) {
    exports.had_values.emplace();
    for (const Json& name : job.at(had_values)) {
      if (name.is_string()) exports.had_values->push_back(name.get<std::string>());
    }
  }
  return exports;
}

// Returns the names of the runs in a folder, the newest first.
std::vector<std::string> ListRuns(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::error_code missing;
    const fs::file_time_type time = fs::last_write_time(entry.path() / "job.json", missing);
    if (!missing) found.emplace_back(time, entry.path().filename().string());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [time, name] : found) names.push_back(std::move(name));
  return names;
}

// Names the runs near `path`, which is no run: in it, next to it, or in runs/. Returns "" if there
// are none.
std::string DescribeRuns(const fs::path& path) {
  constexpr std::size_t kMost = 5;
  for (const fs::path& folder : {path, path.parent_path(), fs::absolute("runs")}) {
    const std::vector<std::string> runs = ListRuns(folder);
    if (runs.empty()) continue;
    std::string text = "; the runs in " + ShortenPath(folder) + ": ";
    for (std::size_t i = 0; i < std::min(runs.size(), kMost); ++i) {
      text += (i == 0 ? "" : ", ") + runs[i];
    }
    if (runs.size() > kMost) text += " and " + std::to_string(runs.size() - kMost) + " older ones";
    return text + DidYouMean(path.filename().string(), runs);
  }
  return "";
}

// Adds to an error about a flag that is not in `given` that the run has set it.
template <typename T>
StatusOr<T> NameOrigin(StatusOr<T> result, const std::vector<std::string>& given) {
  if (result.ok() || !result.status().message().starts_with("--")) return result;
  const std::string& message = result.status().message();
  const std::string flag = message.substr(2, message.find_first_of(" :=;,", 2) - 2);
  if (std::find(given.begin(), given.end(), flag) != given.end()) return result;
  return Status(
      result.status().code(),
      message + "; --" + flag + " is a setting of the run, which a flag given to resume replaces");
}

StatusOr<StoredRun> ReadRun(const std::string& name) {
  const fs::path path = fs::absolute(FindRun(name)).lexically_normal();
  StoredRun run;
  StatusOr<std::unique_ptr<RunDirectory>> opened = RunDirectory::Open(path);
  if (opened.status().code() == StatusCode::kNotFound) {
    return NotFoundError(opened.status().message() + DescribeRuns(path));
  }
  DS_ASSIGN_OR_RETURN(run.directory, std::move(opened));
  DS_ASSIGN_OR_RETURN(const Json job, run.directory->ReadJob());
  if (TextOf(job, "kind") != "train" || !job.contains("train") || !job.contains("launch")) {
    return InvalidArgumentError(path.string() +
                                " is the run of a program that keeps its own checkpoints; start it "
                                "again with the command_line of its job.json");
  }
  run.job_id = TextOf(job, "job");
  DS_ASSIGN_OR_RETURN(run.launch, ReadLaunchFlags(job.at("launch")));
  run.exports = ReadExports(job, run.launch);
  StatusOr<config::TrainJob> train = config::TrainJobFromJson(job.at("train").dump());
  if (!train.ok()) return train.status().WithContext((path / "job.json").string());
  run.train = *std::move(train);
  return run;
}

// Calls FindResumePoint, and retries while a checkpoint cannot be read: a file server may come back
// soon. Ctrl-C ends dsrun meanwhile, because nothing has started.
StatusOr<ResumePoint> AwaitResumePoint(const std::string& named, const fs::path& checkpoints,
                                       std::vector<std::string>* notices) {
  constexpr int kTries = 6;
  constexpr std::chrono::seconds kEvery{5};
  for (int left = kTries;; --left) {
    StatusOr<ResumePoint> point = FindResumePoint(checkpoints.string(), named, notices);
    if (point.status().code() != StatusCode::kUnavailable || left == 0) return point;
    if (left == kTries) {
      ReportNotices({"a checkpoint cannot be read now: " + point.status().message() +
                     "; trying again every 5 s for 30 s (Ctrl-C ends it)"});
    }
    std::this_thread::sleep_for(kEvery);
  }
}

// Sets the checkpoint that `inputs` resume from. The error explains why there is nothing to resume.
// If all steps are done, the tasks after the last step (evaluation, --save_hf) can still run.
Status ChooseResumePoint(const std::string& named, const fs::path& checkpoints,
                         TrainInputs* inputs) {
  const StatusOr<ResumePoint> point = AwaitResumePoint(named, checkpoints, &inputs->notices);
  if (!point.ok()) return point.status().WithContext("cannot resume");
  const bool has_all = inputs->job.steps > 0 && point->step >= inputs->job.steps;
  const bool ends_after_steps = inputs->job.evaluates() || !inputs->job.save_hf_dir.empty();
  if (has_all && !(ends_after_steps && point->step == inputs->job.steps)) {
    return FailedPreconditionError("nothing to resume: " + point->directory + " has all " +
                                   std::to_string(inputs->job.steps) + " steps; give more --steps" +
                                   (inputs->config.moe.residual ? "" : ", or --save_hf DIR"));
  }
  inputs->notices.push_back("resuming from " + point->directory);
  inputs->job.resume_from = point->directory;
  return OkStatus();
}

// Tells the user which variables of this shell replace values that no file contains.
void AddExportNotices(const RenewedExports& renewed, std::vector<std::string>* notices) {
  for (const std::string& name : renewed.from_shell) {
    notices->push_back("ranks get " + name + " of this shell, as requested by the job's -x");
  }
  if (renewed.may_have_had_values) {
    notices->push_back(
        "an older dsrun wrote this job.json, which does not record values that -x gave to one of "
        "them; if there are any, give -x NAME=VALUE again");
  }
}

}  // namespace

StatusOr<int> ResumeCommand(const Invocation& invocation) {
  DS_ASSIGN_OR_RETURN(const ResumeFlags given, ParseFlags(invocation, LaunchFlags{}));
  if (given.help_shown) return kExitOk;
  if (given.run.empty()) return InvalidArgumentError("resume: no RUN_DIR or JOB given");
  if (!given.launch.run_dir.empty()) {
    return InvalidArgumentError("resume: --run_dir is invalid; a run resumes in its own directory");
  }
  DS_ASSIGN_OR_RETURN(StoredRun run, ReadRun(given.run));
  DropReplacedSelection(given.launch, &run.launch);
  DS_ASSIGN_OR_RETURN(RenewedExports renewed,
                      RenewExports(run.exports, given.launch.exports, ReadShellEnvironment()));
  run.launch.exports = std::move(renewed.words);
  DS_ASSIGN_OR_RETURN(const ResumeFlags flags, ParseFlags(invocation, run.launch));
  DS_RETURN_IF_ERROR(CheckLaunchFlags(flags.launch));
  DS_RETURN_IF_ERROR(CheckEngine(flags.launch, {"resume"}));

  DS_ASSIGN_OR_RETURN(
      JobRequest request,
      NameOrigin(GatherJobRequest("train", flags.launch, invocation.command_line), flags.given));
  request.job_id = run.job_id;  // it continues under its own name, in its own folder
  request.run_directory = run.directory->path();
  run.directory->LimitLogs(LimitLogsOf(flags.launch));
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  DS_ASSIGN_OR_RETURN(TrainInputs inputs,
                      NameOrigin(OverrideTrainInputs(run.train, flags.train, share,
                                                     request.launch.world.world_size()),
                                 flags.given));
  AddExportNotices(renewed, &inputs.notices);
  if (const Status chosen =
          ChooseResumePoint(flags.checkpoint, run.directory->checkpoints(), &inputs);
      !chosen.ok()) {
    return ReportError(chosen, FinalStatus(kExitCheckpoint, flags.launch.exit_codes));
  }
  DS_ASSIGN_OR_RETURN(JudgedTraining judged,
                      JudgeTraining(inputs, CountRanks(request.launch.world), share));
  return RunTraining(std::move(request), std::move(inputs), std::move(judged),
                     std::move(run.directory));
}

}  // namespace ds::cli
