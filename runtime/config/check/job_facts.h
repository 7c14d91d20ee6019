#pragma once

// JobFacts holds the known facts of a job outside its ds_config: flags, model and machine. "auto"
// is resolved from them.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ds::config {

// Training flags, named as the TrainingArguments of transformers. A flag that is not given is
// absent.
struct TrainingFlags {
  std::optional<std::int64_t> per_device_train_batch_size;
  std::optional<std::int64_t> gradient_accumulation_steps;
  std::optional<double> learning_rate;
  std::optional<double> adam_beta1;
  std::optional<double> adam_beta2;
  std::optional<double> adam_epsilon;
  std::optional<double> weight_decay;
  std::optional<double> max_grad_norm;
  std::optional<double> warmup_steps;  // below 1: a fraction of all steps
  std::optional<bool> fp16, bf16;      // false: switches off the base config's
  std::optional<std::int64_t> tp;      // tensor ranks; no TrainingArgument
  std::optional<std::int64_t> sp;      // sequence ranks; no TrainingArgument
  std::optional<std::int64_t> pp;      // stages of a pipeline; no TrainingArgument
  std::optional<std::int64_t> ep;      // ranks that share all experts; no TrainingArgument
};

struct ModelFacts {
  std::string name;  // as the user gave it
  // Absent where config.json does not name them.
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> layers;
  std::optional<std::int64_t> experts;
};

// A config that applies where the job's own file and flags leave a key open (file/base_config.h),
// for example a recipe's.
struct BaseConfig {
  std::string name;  // for messages and origins: "recipe lora"
  nlohmann::ordered_json keys = nlohmann::ordered_json::object();
  bool is_built_in = false;  // dsrun's own default, not chosen by the user
};

struct JobFacts {
  int world_size = 1;  // number of ranks of the job
  TrainingFlags flags;
  std::optional<ModelFacts> model;          // absent: unknown
  std::optional<std::int64_t> total_steps;  // optimizer steps in total; absent: unknown
  bool steps_come_later = false;  // the run finds total_steps later: its absence is no error
  std::optional<BaseConfig> base;
  bool ignore_unknown_keys = false;  // one warning for all unknown keys, in place of errors
  bool is_generated = false;         // dsrun wrote the text: messages show no positions in it
};

// Reads the facts from the text of a Hugging Face config.json. The hidden size is the value of
// hidden_size, n_embd, d_model or dim, else the largest of hidden_sizes, else text_config's. The
// other sizes are read alike. A text that is not a JSON object yields no sizes.
ModelFacts ReadModelFacts(std::string_view config_json, std::string name);

}  // namespace ds::config
