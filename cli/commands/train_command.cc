#include "cli/commands/train_command.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <memory>
#include <utility>

#include "cli/commands/command_table.h"
#include "cli/commands/flags_below.h"
#include "cli/commands/foreign_train_flags.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/train/recipe.h"
#include "cli/train/train_inputs.h"
#include "cli/train/train_session.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/shell_quote.h"

namespace ds::cli {
namespace {

struct Flags {
  std::string recipe;   // "" = none
  std::string trainer;  // --from_hf_trainer; "" = none
  TrainFlags train;
  LaunchFlags launch;
  std::vector<std::string> given;  // names of the given flags
  bool help_shown = false;
};

StatusOr<Flags> ParseFlags(const std::vector<std::string>& words, const LaunchFlags& launch) {
  Flags flags{.launch = launch};
  FlagParser parser(
      "[launch flags] train [flags]",
      "Train a model on every rank. Without flags: a small built-in demo. See the pages quickstart "
      "and training of dsrun help. A flag for a key of the ds_config (batch size, optimizer, "
      "precision, parallelism) fills a key that is absent or \"auto\" (dsrun help rates).");
  BeginFlagGroup(parser.app(), "Model and configuration");
  parser.app()
      .add_option(FlagNames("recipe"), flags.recipe,
                  "a tested set of flags and a ds_config, which flags given here override; 'list' "
                  "shows all, NAME.json is one of yours (configs/recipes/README.md)")
      ->type_name("RECIPE");
  parser.app()
      .add_option(FlagNames("from_hf_trainer"), flags.trainer,
                  "arguments of transformers' Trainer, as JSON, which flags given here override; "
                  "dsrun translate shows the equivalent flags")
      ->type_name("FILE");
  AddTrainFlags(parser.app(), &flags.train);
  AddLaunchFlags(&parser, &flags.launch);
  TakeForeignTrainFlags(&parser);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(words, FlagParser::RemainingWords::kRefused));
  flags.help_shown = parsed.help_shown;
  flags.given = parser.Given();
  return flags;
}

StatusOr<FlagsBelow> ChooseBelow(const Flags& flags, const ShareFolder& share) {
  if (flags.recipe.empty() && flags.trainer.empty()) return FlagsBelow{};
  if (!flags.recipe.empty() && !flags.trainer.empty()) {
    return InvalidArgumentError("--recipe and --from_hf_trainer: give one of them");
  }
  if (!flags.trainer.empty()) return ReadTrainerArguments(flags.trainer, flags.train);
  FlagsBelow below;
  DS_ASSIGN_OR_RETURN(below.recipe, FindRecipe(flags.recipe, share));
  below.name = "recipe " + below.recipe.name;
  return below;
}

// Parses the words again, preceded by the words of `below`, and adds a notice for the user.
StatusOr<Flags> ParseOver(FlagsBelow* below, const Invocation& invocation,
                          const std::vector<std::string>& given) {
  std::vector<std::string> words = below->launch;
  const std::vector<std::string> flags_below = WordsBelow(below->recipe, given);
  words.insert(words.end(), flags_below.begin(), flags_below.end());
  below->notices.insert(below->notices.begin(), below->name + ": " + ShellLine(words));
  words.insert(words.end(), invocation.arguments.begin(), invocation.arguments.end());
  StatusOr<Flags> flags = ParseFlags(words, invocation.launch);
  if (!flags.ok()) return flags.status().WithContext(below->name);
  LayOver(*below, &flags->train);
  return flags;
}

// A job that is checked and can start.
struct ReadyJob {
  JobRequest request;
  TrainInputs inputs;
  JudgedTraining judged;
};

// Returns nullopt if the flags only ask for help or for the recipes, which are printed.
StatusOr<std::optional<ReadyJob>> PrepareJob(const Invocation& invocation) {
  DS_ASSIGN_OR_RETURN(Flags flags, ParseFlags(invocation.arguments, invocation.launch));
  if (flags.help_shown) return std::optional<ReadyJob>();
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  if (flags.recipe == "list") {
    DS_ASSIGN_OR_RETURN(const std::string list, ListRecipes(share));
    std::cout << list << std::flush;
    return std::optional<ReadyJob>();
  }
  DS_ASSIGN_OR_RETURN(FlagsBelow below, ChooseBelow(flags, share));
  const TrainFlags given = flags.train;
  if (!below.name.empty()) {
    DS_ASSIGN_OR_RETURN(flags, ParseOver(&below, invocation, flags.given));
  }
  DS_RETURN_IF_ERROR(CheckLaunchFlags(flags.launch));
  DS_RETURN_IF_ERROR(CheckEngine(flags.launch, {"train"}));

  ReadyJob job;
  DS_ASSIGN_OR_RETURN(job.request,
                      GatherJobRequest("train", flags.launch, invocation.command_line));
  const WorldPlan& world = job.request.launch.world;
  DS_ASSIGN_OR_RETURN(job.inputs, GatherTrainInputs(flags.train, share, world.world_size()));
  DS_RETURN_IF_ERROR(CheckAgreement(below, given, flags.train, world.world_size()));
  DS_RETURN_IF_ERROR(CheckRecipeApplies(below.recipe, job.inputs));
  job.inputs.notices.insert(job.inputs.notices.begin(), below.notices.begin(), below.notices.end());
  DS_ASSIGN_OR_RETURN(job.judged, JudgeTraining(job.inputs, CountRanks(world), share));
  return std::optional<ReadyJob>(std::move(job));
}

}  // namespace

StatusOr<std::optional<PlannedTraining>> PlanTraining(const Invocation& invocation) {
  DS_ASSIGN_OR_RETURN(std::optional<ReadyJob> job, PrepareJob(invocation));
  if (!job) return std::optional<PlannedTraining>();
  PlannedTraining planned{.launch = std::move(job->request.flags),
                          .notices = std::move(job->inputs.notices)};
  const std::vector<std::string> split =
      DescribeSplitGroups(job->request.launch.world, job->inputs.config.parallel);
  planned.notices.insert(planned.notices.end(), split.begin(), split.end());
  planned.notices.insert(planned.notices.end(), job->judged.notices.begin(),
                         job->judged.notices.end());
  return std::optional<PlannedTraining>(std::move(planned));
}

StatusOr<int> TrainCommand(const Invocation& invocation) {
  DS_ASSIGN_OR_RETURN(std::optional<ReadyJob> job, PrepareJob(invocation));
  if (!job) return kExitOk;
  DS_ASSIGN_OR_RETURN(
      std::unique_ptr<RunDirectory> run_directory,
      CreateRunDirectory(job->request.flags, &job->request.job_id, &job->request.run_directory));
  DS_RETURN_IF_ERROR(CheckHoldsNoCheckpoints(run_directory->checkpoints()));
  return RunTraining(std::move(job->request), std::move(job->inputs), std::move(job->judged),
                     std::move(run_directory));
}

}  // namespace ds::cli
