#pragma once

// JobFacts: all that is known about a job beside its ds_config, the flags, the model and the
// machine that "auto" is resolved from.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ds::config {

// Flags of training, named as the TrainingArguments of transformers. What is not given is absent.
struct TrainingFlags {
  std::optional<std::int64_t> per_device_train_batch_size;
  std::optional<std::int64_t> gradient_accumulation_steps;
  std::optional<double> learning_rate;
  std::optional<double> adam_beta1;
  std::optional<double> adam_beta2;
  std::optional<double> adam_epsilon;
  std::optional<double> weight_decay;
  std::optional<double> max_grad_norm;
  std::optional<double> warmup_steps;  // below 1: a share of all steps
  std::optional<bool> fp16, bf16;      // false: a base's is switched off
  std::optional<std::int64_t> tp;      // tensor ranks; no TrainingArgument
  std::optional<std::int64_t> sp;      // sequence ranks; no TrainingArgument
  std::optional<std::int64_t> pp;      // stages of a pipeline; no TrainingArgument
  std::optional<std::int64_t> ep;      // ranks with all experts between them; no TrainingArgument
};

struct ModelFacts {
  std::string name;  // as the user gave it
  // Absent where its config.json tells none.
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> layers;
  std::optional<std::int64_t> experts;
};

// A config that holds where the job's own file and flags say nothing (file/base_config.h): a
// recipe's.
struct BaseConfig {
  std::string name;  // for messages and origins: "recipe lora"
  nlohmann::ordered_json keys = nlohmann::ordered_json::object();
  bool is_built_in = false;  // dsrun's own, which nobody has chosen
};

struct JobFacts {
  int world_size = 1;  // all ranks of the job
  TrainingFlags flags;
  std::optional<ModelFacts> model;          // absent: not known here
  std::optional<std::int64_t> total_steps;  // optimizer steps in all; absent: not known here
  bool steps_come_later = false;  // the run will know total_steps: no error where they are absent
  std::optional<BaseConfig> base;
  bool ignore_unknown_keys = false;  // of the config: one warning in place of an error for each
};

// From the text of a Hugging Face config.json. The hidden size is what transformers calls so: under
// its own name or that of the family (n_embd, d_model, dim), the largest of several, or that of the
// text part; the other sizes are found alike. A text that is no JSON object has none.
ModelFacts ReadModelFacts(std::string_view config_json, std::string name);

}  // namespace ds::config
