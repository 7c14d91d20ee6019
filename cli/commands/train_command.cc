#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <utility>

#include "cli/commands/command_table.h"
#include "cli/commands/foreign_train_flags.h"
#include "cli/commands/translate_file.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/job/job_plan.h"
#include "cli/train/recipe.h"
#include "cli/train/train_inputs.h"
#include "cli/train/train_session.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/shell_quote.h"
#include "runtime/config/file/base_config.h"

namespace ds::cli {
namespace {

struct Flags {
  std::string recipe;   // "" = none
  std::string trainer;  // --from_hf_trainer; "" = none
  TrainFlags train;
  LaunchFlags launch;
  std::vector<std::string> given;  // names of what the words give
  bool help_shown = false;
};

StatusOr<Flags> ParseFlags(const std::vector<std::string>& words, const LaunchFlags& launch) {
  Flags flags{.launch = launch};
  FlagParser parser("[launch flags] train [flags]",
                    "Train a model on every rank. Without flags: a small built-in demo.");
  parser.app()
      .add_option(FlagNames("recipe"), flags.recipe,
                  "flags and a ds_config that go well together, before which go those given here; "
                  "'list' shows all, NAME.json is one of yours (configs/recipes/README.md)")
      ->type_name("RECIPE");
  parser.app()
      .add_option(FlagNames("from_hf_trainer"), flags.trainer,
                  "the arguments of transformers' Trainer, as JSON, before which go flags given "
                  "here; dsrun translate shows what they come to")
      ->type_name("FILE");
  AddTrainFlags(parser.app(), &flags.train);
  AddLaunchFlags(&parser, &flags.launch);
  TakeForeignTrainFlags(&parser);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(words, FlagParser::Rest::kRefused));
  flags.help_shown = parsed.help_shown;
  flags.given = parser.Given();
  return flags;
}

// What the user's own words are laid over: nothing, a recipe, or arguments of Trainer.
struct Below {
  std::string name;  // "recipe lora"; "" = nothing
  Recipe recipe;     // flags and ds_config; of Trainer's arguments without a feature
  std::vector<std::string> launch;
  bool is_trainers = false;
};

StatusOr<Below> ChooseBelow(const Flags& flags, const ShareFolder& share) {
  if (flags.recipe.empty() && flags.trainer.empty()) return Below{};
  if (!flags.recipe.empty() && !flags.trainer.empty()) {
    return InvalidArgumentError("--recipe and --from_hf_trainer: give one of them");
  }
  Below below;
  if (!flags.recipe.empty()) {
    DS_ASSIGN_OR_RETURN(below.recipe, FindRecipe(flags.recipe, share));
    below.name = "recipe " + below.recipe.name;
    return below;
  }
  DS_ASSIGN_OR_RETURN(
      Translation translation,
      TranslateTrainerFile(flags.trainer, flags.train.steps, flags.train.deepspeed_config));
  below.name = flags.trainer;
  below.recipe.flags = std::move(translation.flags);
  below.recipe.ds_config = std::move(translation.ds_config);
  below.launch = std::move(translation.launch);
  below.is_trainers = true;
  return below;
}

// Trainer refuses a ds_config whose values are not those of its arguments. Requires the flags that
// these arguments come to, without the user's own.
Status CheckAgreesWithItself(const Below& below, const TrainFlags& flags) {
  std::string message;
  for (const config::Issue& issue :
       config::FindContradictions({.name = "its ds_config", .keys = below.recipe.ds_config},
                                  {.flags = flags.training,
                                  .total_steps = flags.steps,
                                  .steps_come_later = !flags.steps})) {
    message += (message.empty() ? "" : "\n") + issue.message;
  }
  if (message.empty()) return OkStatus();
  return InvalidArgumentError("--from_hf_trainer " + below.name + ": " + message);
}

// Reads the words again with what lies below in front of them. The notice tells the user.
StatusOr<Flags> LayOver(const Below& below, const Invocation& invocation,
                        const std::vector<std::string>& given, std::string* notice) {
  std::vector<std::string> words = below.launch;
  const std::vector<std::string> flags_below = WordsBelow(below.recipe, given);
  words.insert(words.end(), flags_below.begin(), flags_below.end());
  *notice = below.name + ": " + ShellLine(words);
  // A ds_config of the user's own is held against the flags in force, with all that is laid over.
  const bool has_own_config =
      std::find(given.begin(), given.end(), "deepspeed_config") != given.end();
  if (below.is_trainers && !has_own_config) {
    DS_ASSIGN_OR_RETURN(const Flags own, ParseFlags(words, LaunchFlags()));
    DS_RETURN_IF_ERROR(CheckAgreesWithItself(below, own.train));
  }
  words.insert(words.end(), invocation.arguments.begin(), invocation.arguments.end());
  StatusOr<Flags> flags = ParseFlags(words, invocation.launch);
  if (!flags.ok()) return flags.status().WithContext(below.name);
  flags->train.base = config::BaseConfig{.name = below.name, .keys = below.recipe.ds_config};
  return flags;
}

}  // namespace

StatusOr<int> TrainCommand(const Invocation& invocation) {
  DS_ASSIGN_OR_RETURN(Flags flags, ParseFlags(invocation.arguments, invocation.launch));
  if (flags.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(const ShareFolder share, ShareFolder::OfThisProgram());
  if (flags.recipe == "list") {
    DS_ASSIGN_OR_RETURN(const std::string list, ListRecipes(share));
    std::cout << list << std::flush;
    return kExitOk;
  }
  DS_ASSIGN_OR_RETURN(const Below below, ChooseBelow(flags, share));
  std::string notice;
  if (!below.name.empty()) {
    DS_ASSIGN_OR_RETURN(flags, LayOver(below, invocation, flags.given, &notice));
  }
  DS_RETURN_IF_ERROR(CheckLaunchFlags(flags.launch));

  DS_ASSIGN_OR_RETURN(JobRequest request,
                      GatherJobRequest("train", flags.launch, invocation.command_line));
  DS_ASSIGN_OR_RETURN(TrainInputs inputs,
                      GatherTrainInputs(flags.train, share, request.launch.world.world_size()));
  if (!below.name.empty()) {
    DS_RETURN_IF_ERROR(CheckStandsFor(below.recipe, inputs));
    inputs.notices.insert(inputs.notices.begin(), notice);
  }
  DS_ASSIGN_OR_RETURN(JudgedTraining judged,
                      JudgeTraining(inputs, CountRanks(request.launch.world), share));
  DS_ASSIGN_OR_RETURN(std::unique_ptr<RunDirectory> run_directory,
                      RunDirectory::Create(request.run_directory));
  return RunTraining(std::move(request), std::move(inputs), std::move(judged),
                     std::move(run_directory));
}

}  // namespace ds::cli
