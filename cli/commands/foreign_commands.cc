#include "cli/commands/foreign_commands.h"

#include <string>

namespace ds::cli {
namespace {

constexpr std::string_view kExport =
    "`dsrun resume RUN --save_hf DIR` writes the model of a run as a Hugging Face folder; so does "
    "`dsrun train --save_hf DIR` at its end";
constexpr std::string_view kTrain =
    "`dsrun train` trains every weight, or adapters by --lora_rank N "
    "(dsrun help fine-tune)";
constexpr std::string_view kEvaluate =
    "`dsrun train` evaluates by --eval_data or --eval_split (dsrun help evaluate)";
constexpr std::string_view kGenerate = "`dsrun generate --model DIR PROMPT` generates text";
constexpr std::string_view kLaunch =
    "`dsrun [launch flags] SCRIPT.py` starts a script on every rank, `dsrun run -- PROGRAM` any "
    "program (dsrun help launch)";
constexpr std::string_view kReport = "`dsrun report` shows this host's environment";
constexpr std::string_view kRuns =
    "a job writes its state into its folder in runs/ (dsrun help runs)";
constexpr std::string_view kFit =
    "`dsrun estimate --model DIR` and `dsrun plan --fit` find settings that fit into memory";
constexpr std::string_view kStop = "Ctrl-C in its terminal, or SIGTERM to its dsrun, stops a job";
constexpr std::string_view kTokenize =
    "`dsrun train --data FILE` reads texts as they are; `dsrun tokenize` tokenizes them once";

struct ForeignCommand {
  std::string_view name;
  std::string_view meaning;
};

constexpr ForeignCommand kForeignCommands[] = {
    {"export", kExport},
    {"convert", kExport},
    {"save", kExport},
    {"zero_to_fp32", kExport},
    {"merge", "`dsrun train --lora_merge --save_hf DIR` writes a model merged with its adapters"},
    {"sft", kTrain},
    {"finetune", kTrain},
    {"fine-tune", kTrain},
    {"lora", kTrain},
    {"pretrain", kTrain},
    {"continue", "`dsrun resume RUN` continues a run from its newest checkpoint"},
    {"eval", kEvaluate},
    {"evaluate", kEvaluate},
    {"chat", kGenerate},
    {"infer", kGenerate},
    {"inference", kGenerate},
    {"predict", kGenerate},
    {"serve", "dsrun has no server: export a model with --save_hf for one (vLLM)"},
    {"launch", kLaunch},
    {"exec", kLaunch},
    {"env", kReport},
    {"info", kReport},
    {"doctor", kReport},
    {"ds_report", kReport},
    {"list", kRuns},
    {"logs", kRuns},
    {"status", kRuns},
    {"stop", kStop},
    {"cancel", kStop},
    {"init", "`dsrun train --recipe list` lists tested settings to start from"},
    {"config", "`dsrun check FILE` validates a ds_config (dsrun help ds_config)"},
    {"validate",
     "`dsrun check FILE` validates a ds_config, `dsrun checkpoint verify DIR` checkpoints"},
    {"verify", "`dsrun checkpoint verify DIR` checks checkpoints, `dsrun check FILE` a ds_config"},
    {"autotune", kFit},
    {"tune", kFit},
    {"download", "dsrun downloads nothing: `hf download` fetches models for --model"},
    {"preprocess", kTokenize},
};

}  // namespace

Status RefuseForeignCommand(std::string_view word) {
  for (const ForeignCommand& command : kForeignCommands) {
    if (command.name != word) continue;
    return InvalidArgumentError("there is no command '" + std::string(word) +
                                "': " + std::string(command.meaning));
  }
  return OkStatus();
}

}  // namespace ds::cli
