#pragma once

// The flags of `train` and `resume`: model, data, length and settings of a training run.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/train/row_flags.h"
#include "cli/train/schedule_flags.h"
#include "runtime/config/check/job_facts.h"
#include "runtime/config/train_job.h"

namespace CLI {
class App;
}

namespace ds::cli {

struct TrainFlags {
  std::string model;  // "" = not given, for all strings here
  std::vector<std::string> data;
  std::vector<double> data_weights;
  std::string deepspeed_config;
  std::optional<config::BaseConfig> base;  // the base of the ds_config, from a recipe; no flag
  bool ignore_unknown_keys = false;        // in the ds_config
  std::optional<std::string> token_dtype;
  std::string tokenizer;
  std::optional<std::string> data_field;
  RowFlags rows;
  std::optional<std::string> on_bad_data;
  std::string data_cache;
  std::optional<std::string> packing;
  std::vector<std::string> eval_data;
  std::optional<double> eval_split;
  std::optional<std::int64_t> eval_every;
  std::optional<bool> save_best, load_best_model_at_end;
  std::optional<std::int64_t> eval_patience;
  std::optional<double> max_minutes;
  std::optional<std::int64_t> seq_len;
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> epochs;
  std::optional<std::uint64_t> seed;
  std::optional<bool> no_shuffle;
  std::optional<std::int64_t> save_every;
  std::optional<std::int64_t> save_total_limit;
  std::string save_hf;
  config::TrainingFlags training;
  std::optional<std::string> on_non_finite;
  std::optional<std::string> recompute;
  std::optional<std::int64_t> tile_mlp;
  std::optional<std::string> sp_kind;
  std::optional<std::int64_t> sp_chunk;
  std::optional<std::string> sp_offload;
  std::optional<std::string> pp_schedule;
  std::optional<std::int64_t> pp_virtual_stages;
  std::optional<bool> no_decay_on_norms_and_biases;
  std::optional<double> layer_decay;
  std::optional<double> neftune_noise_alpha;
  std::optional<std::string> router_aux_loss_coef;
  std::vector<std::string> freeze;
  std::optional<std::int64_t> lora_rank;
  std::optional<double> lora_alpha, lora_dropout;
  std::vector<std::string> lora_targets;
  std::optional<bool> lora_rslora, lora_dora;
  std::optional<std::string> quantize_base;
  std::string lora_adapter;
  std::optional<bool> lora_merge, encrypt;
  bool allow_overcommit = false;  // of host memory
  ScheduleFlags schedule;
};

// Declares the flags on `app`. Parsing writes into `flags`, which must outlive the parse.
void AddTrainFlags(CLI::App& app, TrainFlags* flags);

// Declares --ignore_unknown_keys, for every command that reads a full ds_config.
void AddIgnoreUnknownKeys(CLI::App& app, bool* ignore);

// Applies the given flags to `job`, except model, data, config and schedule, which need checks.
// Relative paths become absolute, so the job does not depend on the working directory.
void ApplyTrainFlags(const TrainFlags& flags, config::TrainJob* job);

}  // namespace ds::cli
