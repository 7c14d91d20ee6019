#include "cli/commands/command_table.h"

#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

constexpr Command kCommands[] = {
    {"train", "[flags]", "Train a model with ZeRO on every rank", TrainCommand, kAllLaunchFlags},
    {"resume", "RUN_DIR|JOB [flags]", "Resume training from the newest checkpoint", ResumeCommand,
     kAllLaunchFlags},
    {"run", "-- PROGRAM", "Run a program on every rank", RunCommand, kAllLaunchFlags},
    {"ps", "[--json]", "List your jobs that run on this machine", PsCommand},
    {"status", "[--json] [RUN_DIR|JOB]", "Show the state of a job", StatusCommand},
    {"logs", "[-f] [--rank N] [RUN_DIR|JOB]", "Print the output of a job's ranks", LogsCommand},
    {"events", "[-f] [--json] [RUN_DIR|JOB]", "Print what happened to a job's ranks",
     EventsCommand},
    {"attach", "[RUN_DIR|JOB]", "Show a running job again", AttachCommand},
    {"detach", "[RUN_DIR|JOB]", "Let a job go on without its dsrun", DetachCommand},
    {"stop", "[--now] [RUN_DIR|JOB]", "Stop a job", StopCommand},
    {"plan", "[--mesh M] [--json] -- PROGRAM|train ...",
     "Show which ranks would run where; start nothing", PlanCommand, kAllLaunchFlags},
    {"bench", "comm|io|memory [flags]",
     "Measure the collectives between the ranks, a drive or memory", BenchCommand, kAllLaunchFlags},
    {"report", "[--json]",
     "Show the environment of this host, or of a hostfile's, and its problems", ReportCommand,
     "--hostfile --include --exclude --num_nodes --num_gpus --np --share_machine --device --python "
     "--export --env_file --workdir --run_dir --launcher --ssh_port --ssh_timeout --lease_seconds"},
    {"checkpoint", "verify|list DIR", "Check the checkpoints in DIR, or list them",
     CheckpointCommand},
    {"check", "CONFIG [--json]", "Validate a ds_config", CheckCommand},
    {"elastic", "-c CONFIG [-w N] [--json]", "Show the batch size of an elasticity section",
     ElasticCommand},
    {"estimate", "--model DIR [flags]", "Estimate the memory of a model or a job", EstimateCommand},
    {"tokenize", "FILES --tokenizer DIR --out FILE", "Tokenize text files", TokenizeCommand},
    {"generate", "--model DIR [flags] PROMPT", "Generate text from a prompt", GenerateCommand},
    {"translate", "FILE|deepspeed ... [flags]",
     "Convert settings of Trainer, Accelerate or deepspeed", TranslateCommand},
    {"completion", "bash|zsh|fish", "Print the completion script of a shell", CompletionCommand},
    {"help", "[COMMAND|PAGE]", "Show the commands, one command's flags, or a page", HelpCommand},
    {"version", "", "Show the version", VersionCommand},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

bool TakesLaunchFlag(const Command& command, std::string_view name) {
  const std::string words = " " + std::string(command.launch_flags) + " ";
  return words.find(" " + std::string(name) + " ") != std::string::npos;
}

const Command* FindCommand(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::string SuggestCommand(std::string_view word, const std::vector<std::string>& pages) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  names.insert(names.end(), pages.begin(), pages.end());
  const int most_typos = word.size() < 5 ? 1 : 2;
  const std::string nearest = Nearest(word, names, most_typos);
  return nearest.empty() ? "; see dsrun help" : "; did you mean '" + nearest + "'?";
}

}  // namespace ds::cli
