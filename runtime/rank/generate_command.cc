#include "runtime/rank/commands.h"

#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/printable.h"
#include "runtime/config/generate_job.h"
#include "runtime/device/rank_device.h"
#include "runtime/inference/generate.h"
#include "runtime/inference/generation_config.h"
#include "runtime/inference/load_model.h"
#include "runtime/inference/prompt_encoder.h"
#include "runtime/models/weights/model_config.h"
#include "runtime/rank/text_printer.h"
#include "runtime/rank/torch_boundary.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"

namespace ds::rank {
namespace {

constexpr std::int64_t kMostNewTokens = 128;  // default
constexpr std::int64_t kByteTokens = 256;

void PrintNotice(const std::string& text) {
  std::fprintf(stderr, "dsrun: %s\n", Printable(text).c_str());
}

// GenerateCommand: runs a job from its description to its end. Its phases run in order and share
// the members.
class GenerateCommand {
 public:
  explicit GenerateCommand(config::GenerateJob job) : job_(std::move(job)) {}

  // Checks everything that does not need the weights.
  Status Check();
  Status Load();
  Status Generate();

 private:
  Status ReadOptions();
  StatusOr<inference::Prompt> ReadPrompt(std::size_t index, inference::PromptEncoder* encoder);
  std::string LocationOf(std::size_t index) const;

  const config::GenerateJob job_;
  models::ModelConfig model_config_;
  std::optional<tokenizer::TokenizerFolder> tokenizer_;
  inference::GenerateOptions options_;
  std::int64_t most_new_tokens_ = kMostNewTokens;
  std::optional<std::int64_t> most_tokens_;  // prompt and text together; used instead of the above
  bool must_fit_ = false;                    // all requested new tokens must fit
  std::vector<inference::Prompt> prompts_;
  c10::ScalarType dtype_ = c10::kFloat;
  device::RankDevice device_;
  inference::LoadedModel model_;
};

Status GenerateCommand::Check() {
  DS_ASSIGN_OR_RETURN(const device::DeviceChoice choice, device::DeviceChoiceFromName(job_.device));
  DS_ASSIGN_OR_RETURN(device_, device::OpenRankDevice(choice, /*local_rank=*/0));
  DS_ASSIGN_OR_RETURN(model_config_, models::ReadModelConfig(job_.model));
  DS_ASSIGN_OR_RETURN(dtype_, inference::FindDtype(job_.dtype, model_config_));
  if (!job_.tokenizer.empty()) {
    DS_ASSIGN_OR_RETURN(tokenizer_, tokenizer::ReadTokenizerFolder(job_.tokenizer));
  } else if (model_config_.decoder.vocabulary < kByteTokens) {
    return InvalidArgumentError("--tokenizer bytes: the model has " +
                                std::to_string(model_config_.decoder.vocabulary) +
                                " tokens, and there are 256 bytes");
  }
  DS_RETURN_IF_ERROR(ReadOptions());
  inference::PromptEncoder encoder(tokenizer_ ? &*tokenizer_ : nullptr);
  for (std::size_t i = 0; i < job_.prompts.size(); ++i) {
    auto prompt = ReadPrompt(i, &encoder);
    if (!prompt.ok()) return prompt.status().WithContext(LocationOf(i));
    prompts_.push_back(*std::move(prompt));
  }
  return OkStatus();
}

std::string GenerateCommand::LocationOf(std::size_t index) const {
  return job_.prompts.size() == 1 ? "the prompt" : "prompt " + std::to_string(index + 1);
}

// Combines the folder's settings with the user's, which take precedence. End tokens are those of
// the folder, or the tokenizer's end-of-text token.
Status GenerateCommand::ReadOptions() {
  DS_ASSIGN_OR_RETURN(inference::GenerationConfig config,
                      inference::ReadGenerationConfig(model_config_.folder, model_config_.json,
                                                      job_.ignore_generation_config));
  inference::SamplingOptions& sampling = config.sampling;
  sampling.draws = job_.draws.value_or(sampling.draws);
  sampling.temperature = job_.temperature.value_or(sampling.temperature);
  sampling.top_k = job_.top_k.value_or(sampling.top_k);
  sampling.top_p = job_.top_p.value_or(sampling.top_p);
  sampling.repetition_penalty = job_.repetition_penalty.value_or(sampling.repetition_penalty);
  if (sampling.draws && sampling.temperature == 0.0) {
    return InvalidArgumentError(
        "generation_config.json: temperature is 0, with which nothing can be drawn: give --greedy, "
        "or a --temperature");
  }
  must_fit_ = job_.max_new_tokens.has_value();
  if (!must_fit_ && !config.max_new_tokens) most_tokens_ = config.max_length;
  most_new_tokens_ = job_.max_new_tokens.value_or(config.max_new_tokens.value_or(kMostNewTokens));
  if (config.end_tokens.empty() && tokenizer_ && tokenizer_->end_of_text) {
    config.end_tokens.push_back(*tokenizer_->end_of_text);
  }
  options_ = {.sampling = sampling, .end_tokens = config.end_tokens, .seed = job_.seed};
  return OkStatus();
}

StatusOr<inference::Prompt> GenerateCommand::ReadPrompt(std::size_t index,
                                                        inference::PromptEncoder* encoder) {
  inference::Prompt prompt{.number = index};
  DS_ASSIGN_OR_RETURN(prompt.tokens, encoder->Encode(job_.prompts[index]));
  for (const std::int64_t token : prompt.tokens) {
    if (token < model_config_.decoder.vocabulary) continue;
    return InvalidArgumentError("token " + std::to_string(token) + " is none of the model's " +
                                std::to_string(model_config_.decoder.vocabulary) +
                                ": is this the model's tokenizer?");
  }
  const auto tokens = static_cast<std::int64_t>(prompt.tokens.size());
  prompt.most_new_tokens = most_tokens_ ? *most_tokens_ - tokens : most_new_tokens_;
  if (prompt.most_new_tokens < 1) {
    return InvalidArgumentError(
        "its " + std::to_string(tokens) +
        " tokens leave no space for new ones: generation_config.json has max_length " +
        std::to_string(*most_tokens_) + "; --max_new_tokens N overrides it");
  }
  if (models::CheckSequenceLength(model_config_, tokens + prompt.most_new_tokens).ok()) {
    return prompt;
  }
  const std::int64_t capacity = model_config_.decoder.max_positions - tokens;
  if (capacity > 0 && !must_fit_) {
    prompt.most_new_tokens = capacity;
    return prompt;
  }
  const std::string asked =
      capacity > 0 ? " and " + std::to_string(prompt.most_new_tokens) + " new ones" : "";
  const std::string advice =
      capacity > 0 ? "; --max_new_tokens " + std::to_string(capacity) + " fits" : "";
  return InvalidArgumentError(
      "its " + std::to_string(tokens) + " tokens" + asked + " do not fit the model, which has " +
      std::to_string(model_config_.decoder.max_positions) + " positions" + advice);
}

Status GenerateCommand::Load() {
  const auto options = c10::TensorOptions(dtype_).device(device_.device);
  DS_ASSIGN_OR_RETURN(model_,
                      inference::LoadModel(model_config_, options, job_.seed, job_.lora_adapter));
  if (!model_.has_weights) {
    PrintNotice(job_.model +
                " has no weights: they are drawn by --seed, and the text means nothing");
  }
  if (!model_.unused.empty()) {
    PrintNotice(std::to_string(model_.unused.size()) +
                " stored tensors are not part of the model, " + model_.unused.front() +
                " for one; they are left out");
  }
  return OkStatus();
}

Status GenerateCommand::Generate() {
  TextPrinter printer(stdout, {.json = job_.json, .streams = !job_.json && prompts_.size() == 1},
                      tokenizer_ ? &tokenizer_->tokenizer : nullptr);
  const auto batch_size = static_cast<std::size_t>(job_.batch_size);
  for (std::size_t first = 0; first < prompts_.size(); first += batch_size) {
    const std::size_t end = std::min(prompts_.size(), first + batch_size);
    std::vector<inference::Prompt> batch;
    std::vector<TextPrinter::Announced> announced;
    for (std::size_t i = first; i < end; ++i) {
      announced.push_back({.prompt = &job_.prompts[i], .tokens = prompts_[i].tokens.size()});
      batch.push_back(std::move(prompts_[i]));
    }
    printer.Begin(announced);
    inference::Generate(*model_.blocks, model_config_.decoder, batch, options_, printer);
    DS_RETURN_IF_ERROR(printer.status());
  }
  return OkStatus();
}

struct GeneratePhase {
  Status (GenerateCommand::*run)();
  int exit_code;  // after a failure of the phase
};

StatusOr<config::GenerateJob> ReadJob(const std::string& path) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return config::GenerateJobFromJson(text);
}

}  // namespace

int RunGenerate(const std::string& job_path) {
  auto job = ReadJob(job_path);
  if (!job.ok()) {
    PrintNotice(job.status().message());
    return kExitUsage;
  }
  const int offset = job->status_offset;
  GenerateCommand command(*std::move(job));
  constexpr GeneratePhase kPhases[] = {{&GenerateCommand::Check, kExitUsage},
                                       {&GenerateCommand::Load, kExitUsage},
                                       {&GenerateCommand::Generate, kExitFailure}};
  for (const GeneratePhase& phase : kPhases) {
    const Status status = AtTorchBoundary([&] { return (command.*phase.run)(); });
    if (status.ok()) continue;
    PrintNotice(status.message());
    return offset + (IsOutOfMemory(status) ? kExitFailure : phase.exit_code);
  }
  return kExitOk;
}

}  // namespace ds::rank
