#include "runtime/config/generate_job.h"

#include <algorithm>

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
Json OrNull(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

template <typename Value>
std::optional<Value> OrNothing(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<Value>());
}

bool IsSound(const GenerateJob& job) {
  const auto is_prompt = [](const Json& prompt) {
    if (prompt.is_string() || prompt.is_array()) return true;
    if (!prompt.is_object()) return false;
    return prompt.value("messages", Json()).is_array() &&
           prompt.value("variables", Json()).is_object();
  };
  return !job.prompts.empty() && std::all_of(job.prompts.begin(), job.prompts.end(), is_prompt) &&
         job.max_new_tokens.value_or(1) > 0 && job.temperature.value_or(1.0) > 0.0 &&
         job.top_k.value_or(0) >= 0 && job.top_p.value_or(1.0) > 0.0 &&
         job.repetition_penalty.value_or(1.0) > 0.0 && job.batch_size > 0;
}

}  // namespace

std::string ToJson(const GenerateJob& job) {
  const Json json = {{"model", job.model},
                     {"tokenizer", job.tokenizer},
                     {"lora_adapter", job.lora_adapter},
                     {"prompts", job.prompts},
                     {"max_new_tokens", OrNull(job.max_new_tokens)},
                     {"draws", OrNull(job.draws)},
                     {"temperature", OrNull(job.temperature)},
                     {"top_k", OrNull(job.top_k)},
                     {"top_p", OrNull(job.top_p)},
                     {"repetition_penalty", OrNull(job.repetition_penalty)},
                     {"ignore_generation_config", job.ignore_generation_config},
                     {"seed", job.seed},
                     {"dtype", job.dtype},
                     {"device", job.device},
                     {"batch_size", job.batch_size},
                     {"json", job.json},
                     {"status_offset", job.status_offset}};
  return json.dump();
}

StatusOr<GenerateJob> GenerateJobFromJson(std::string_view text) {
  GenerateJob job;
  try {
    const Json json = Json::parse(text);
    job = {.model = json.at("model"),
           .tokenizer = json.at("tokenizer"),
           .lora_adapter = json.at("lora_adapter"),
           .prompts = json.at("prompts"),
           .max_new_tokens = OrNothing<std::int64_t>(json.at("max_new_tokens")),
           .draws = OrNothing<bool>(json.at("draws")),
           .temperature = OrNothing<double>(json.at("temperature")),
           .top_k = OrNothing<std::int64_t>(json.at("top_k")),
           .top_p = OrNothing<double>(json.at("top_p")),
           .repetition_penalty = OrNothing<double>(json.at("repetition_penalty")),
           .ignore_generation_config = json.at("ignore_generation_config"),
           .seed = json.at("seed"),
           .dtype = json.at("dtype"),
           .device = json.at("device"),
           .batch_size = json.at("batch_size"),
           .json = json.at("json"),
           .status_offset = json.at("status_offset")};
  } catch (const nlohmann::json::exception&) {
    return InvalidArgumentError("generate job: a value is missing or of another type");
  }
  if (!IsSound(job)) return InvalidArgumentError("generate job: a value is out of range");
  return job;
}

}  // namespace ds::config
