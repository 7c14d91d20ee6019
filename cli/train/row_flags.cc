#include "cli/train/row_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "cli/flags/add_switch.h"
#include "cli/flags/flag_parser.h"

namespace ds::cli {
namespace {

constexpr const char* kGroup = "Rows of data (dsrun help rows)";

struct RowKey {
  const char* name;
  std::optional<std::string> RowFlags::*flag;
  std::string config::TrainJob::*job;
  std::string tokenizer::RowOptions::*rows;
  const char* doc;
};

using Job = config::TrainJob;
using Rows = tokenizer::RowOptions;

constexpr RowKey kKeys[] = {
    {"text_field", &RowFlags::text_field, &Job::text_field, &Rows::text_field,
     "a row is the text under this key (default: conversations, prompts with completions, "
     "preferences, instructions, or the key text)"},
    {"messages_field", &RowFlags::messages_field, &Job::messages_field, &Rows::messages_field,
     "a row is the conversation under this key (default: messages or conversations)"},
    {"prompt_field", &RowFlags::prompt_field, &Job::prompt_field, &Rows::prompt_field,
     "a row is the prompt under this key and its completion (default: prompt)"},
    {"completion_field", &RowFlags::completion_field, &Job::completion_field,
     &Rows::completion_field, "the completion's key (default: completion)"},
    {"tools_field", &RowFlags::tools_field, &Job::tools_field, &Rows::tools_field,
     "the key of a conversation's tools, a list or its JSON text (default: tools)"},
    {"role_field", &RowFlags::role_field, &Job::role_field, &Rows::role_field,
     "the key of a message's role (default: role or from)"},
    {"content_field", &RowFlags::content_field, &Job::content_field, &Rows::content_field,
     "the key of a message's content (default: content or value)"}};

Status CheckFormats(bool names_text, bool names_messages, bool names_prompt) {
  if (names_text + names_messages + names_prompt <= 1) return OkStatus();
  return InvalidArgumentError(
      "--text_field, --messages_field, and --prompt_field with --completion_field each name the "
      "one format of all rows: give one of them");
}

}  // namespace

void AddRowFlags(CLI::App& app, RowFlags* flags) {
  for (const RowKey& key : kKeys) {
    app.add_option(FlagNames(key.name), flags->*key.flag, key.doc)
        ->type_name("NAME")
        ->group(kGroup);
  }
  TakeOneOf(app.add_option(
                FlagNames("prompt_style"), flags->prompt_style,
                "format of an instruction with its output: chat (the chat template; default if "
                "there is one) or alpaca (Stanford Alpaca's prompt)"),
            {"chat", "alpaca"})
      ->group(kGroup);
}

void AddDocumentFlags(CLI::App& app, RowFlags* flags) {
  app.add_option(FlagNames("max_length"), flags->max_length,
                 "truncate documents to N tokens, as TRL does, and skip a document without a token "
                 "left that contributes to the loss (default: 0, no truncation); without --seq_len "
                 "and --packing it sets them to N and none")
      ->check(WholeNumber(0))
      ->type_name("N")
      ->group(kGroup);
  TakeOneOf(app.add_option(
                FlagNames("truncation_mode"), flags->truncation_mode,
                "part of a document that --max_length keeps: keep_start (default) or keep_end"),
            {"keep_start", "keep_end"})
      ->group(kGroup);
  AddSwitch(app, "assistant_only_loss", &flags->assistant_only_loss,
            "in a completion of several messages compute the loss on the assistant's messages "
            "only, as TRL does; rejects rows without messages")
      ->group(kGroup);
}

void ApplyRowFlags(const RowFlags& flags, config::TrainJob* job) {
  for (const RowKey& key : kKeys) {
    if (flags.*key.flag) job->*key.job = *(flags.*key.flag);
  }
  job->prompt_style = flags.prompt_style.value_or(job->prompt_style);
  job->truncation_mode = flags.truncation_mode.value_or(job->truncation_mode);
  job->assistant_only_loss = flags.assistant_only_loss.value_or(job->assistant_only_loss);
  job->max_length = flags.max_length.value_or(job->max_length);
  if (flags.max_length.value_or(0) == 0) return;
  job->packing = "none";
  job->seq_len = job->max_length;
}

Status CheckRowFlags(const config::TrainJob& job) {
  DS_RETURN_IF_ERROR(CheckFormats(!job.text_field.empty(), !job.messages_field.empty(),
                                  !job.prompt_field.empty() || !job.completion_field.empty()));
  if (job.max_length == 0 && job.truncation_mode != "keep_start") {
    return InvalidArgumentError("--truncation_mode requires --max_length");
  }
  if (job.max_length <= job.seq_len || job.packing == "stream") return OkStatus();
  return InvalidArgumentError("--seq_len " + std::to_string(job.seq_len) +
                              " is less than the documents of --max_length " +
                              std::to_string(job.max_length) + ": make them equal");
}

std::string FindRowFlag(const config::TrainJob& job) {
  for (const RowKey& key : kKeys) {
    if (!(job.*key.job).empty()) return std::string("--") + key.name;
  }
  if (!job.prompt_style.empty()) return "--prompt_style";
  if (job.assistant_only_loss) return "--assistant_only_loss";
  return job.max_length > 0 ? "--max_length" : "";
}

StatusOr<tokenizer::RowOptions> RowOptionsOf(const RowFlags& flags) {
  DS_RETURN_IF_ERROR(CheckFormats(flags.text_field.has_value(), flags.messages_field.has_value(),
                                  flags.prompt_field || flags.completion_field));
  tokenizer::RowOptions options;
  for (const RowKey& key : kKeys) options.*key.rows = (flags.*key.flag).value_or("");
  options.prompt_style = flags.prompt_style.value_or("");
  return options;
}

}  // namespace ds::cli
