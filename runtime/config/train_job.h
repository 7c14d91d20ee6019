#pragma once

// TrainJob holds everything that a rank needs for the `train` command. dsrun writes it to
// train.json.
//
// dsrun writes it once per job, after checking every part of it, and dsrank reads it. `resume`
// reads it back, applies the user's overrides, and writes it again. A rank learns its own rank from
// the environment, never from here, so all ranks of a job read the same file.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::config {

struct TrainJob {
  std::string model;                   // folder, config.json or the name of a preset
  std::vector<std::string> data;       // text files, folders or .bin token files, in this order
  std::vector<double> data_weights;    // fraction of the samples for each path; empty: no blend
  std::string token_dtype = "uint16";  // of .bin files: uint16 or uint32
  std::string tokenizer;               // a folder; empty: each byte of a text is a token
  std::string data_field;  // of .json files: the field with the rows; empty: the top level
  // Keys of rows (tokenizer::RowOptions); empty: the usual ones.
  std::string text_field, messages_field, prompt_field, completion_field, tools_field;
  std::string role_field, content_field;
  std::string prompt_style;     // of instructions: chat, alpaca or empty
  std::int64_t max_length = 0;  // tokens to which documents are truncated; 0: no limit
  std::string truncation_mode = "keep_start";  // or keep_end
  bool assistant_only_loss = false;            // no loss on other messages, in completions, too
  std::string on_bad_data = "stop";            // or skip: for texts that cannot be used
  std::string data_cache;                      // folder for cached tokens; empty: this user's cache
  std::string packing = "stream";              // of documents into samples: stream, whole or none
  std::vector<std::string> eval_data;  // like data, but only evaluated: its loss is reported
  double eval_split = 0.0;         // instead of eval_data: fraction held out at the end of `data`
  std::int64_t eval_every = 0;     // steps between evaluations; 0: only after the last step
  bool save_best = false;          // keeps the checkpoint with the lowest evaluation loss
  bool load_best = false;          // save_hf_dir gets that checkpoint's model; needs save_best
  std::int64_t eval_patience = 0;  // ends after this many evaluations without improvement; 0: never
  double max_minutes = 0.0;        // time limit; training ends with a checkpoint; 0: none
  double warmup_share = 0.0;       // fraction of all steps; 0: as in ds_config
  std::int64_t seq_len = 256;      // tokens per sample
  std::int64_t steps = 0;          // total optimizer steps; 0: as many as `epochs` need
  std::int64_t epochs = 1;         // passes over the data; read only when steps is 0
  bool shuffle = true;
  std::uint64_t seed = 1234;          // of weights without a file, shuffling, dropout
  std::int64_t save_every = 0;        // steps between checkpoints; 0: none
  std::int64_t save_total_limit = 0;  // checkpoints to keep; 0: all
  std::string checkpoint_dir;         // holds step-N folders
  std::string checkpoint_mark;  // a file made there by dsrun (CheckSharedFolder); empty: no check
  std::string resume_from;      // a step-N folder; empty: start at step 0
  std::int64_t start = 0;       // id of this start of the ranks (DrawStart); 0: none
  std::string device = "auto";  // auto, cpu or cuda
  bool encrypt = false;         // encrypts traffic between hosts
  // The action after a step with a gradient that is not finite: auto (as ds_config says), skip,
  // rewind or stop.
  std::string on_non_finite = "auto";
  std::string recompute = "auto";         // a value that ParseRecompute accepts
  std::int64_t mlp_tiles = 1;             // tiles of rows in feed-forward layers, run one by one
  std::string sequence_kind = "ulysses";  // or ring: kind of sequence parallelism
  std::int64_t sp_chunk = 0;              // tokens per chunk (FPDT) of attention; 0: all
  std::string sp_offload;  // where chunks are stored: "" (the device), cpu or a folder
  std::string pipeline_schedule = "1f1b";     // with pipeline stages: a pipeline::ScheduleKind
  std::int64_t pipeline_virtual_stages = 0;   // per stage; 0: the schedule's default
  bool no_decay_on_norms_and_biases = false;  // weight decay on matrices only
  double layer_decay = 1.0;               // a block's learning rate is this times the next block's
  std::string ds_config = "{}";           // JSON text accepted by CheckConfig
  std::vector<std::string> derived_keys;  // of ds_config (CheckResult::derived), for `resume`
  std::string save_hf_dir;                // model.safetensors and config.json at the end; empty: no
  std::string router_aux_loss_coef;       // read by engine::TakeBalance
  double neftune_noise_alpha = 0.0;       // noise on embeddings in training; 0: none
  std::vector<std::string> freeze;        // patterns of parameters that are not trained
  std::int64_t lora_rank = 0;             // of adapters, trained in place of the model; 0: none
  double lora_alpha = 0.0;                // 0: twice the rank
  std::vector<std::string> lora_targets;  // linear layers (models::ReadTargets); empty: all
  bool lora_rslora = false;               // scaled by 1 / sqrt(rank)
  bool lora_dora = false;                 // adapters with separate magnitudes
  double lora_dropout = -1.0;             // below 0: as in lora_adapter's folder, or none
  std::string quantize_base;              // base weights: nf4, nf4-double or int8; empty: no
  std::string lora_adapter;               // a PEFT folder to continue from, in place of the above
  bool lora_merge = false;                // save_hf_dir gets the model merged with its adapters

  bool adapts() const { return lora_rank > 0 || !lora_adapter.empty(); }
  bool saves() const { return save_every > 0 || save_best || max_minutes > 0.0; }
  bool evaluates() const { return !eval_data.empty() || eval_split > 0.0; }

  friend bool operator==(const TrainJob&, const TrainJob&) = default;
};

// Returns true for a token file, false for a text file, by its name.
bool IsTokenFile(const std::filesystem::path& path);
// Returns true for a token file, or a folder or pattern with one, that has an index of Megatron-LM.
// The index lists the ends of documents.
bool HasTokenIndex(const std::filesystem::path& path);

// Returns indented JSON with every field. Bytes that are not UTF-8, which JSON cannot hold, become
// U+FFFD.
std::string ToJson(const TrainJob& job);

// Parses ToJson's output. Rejects unknown fields (naming the nearest known one), missing model or
// data, wrong types and values out of range. Missing fields keep their default.
StatusOr<TrainJob> TrainJobFromJson(std::string_view json);

}  // namespace ds::config
