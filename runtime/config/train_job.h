#pragma once

// TrainJob: everything a rank needs for the `train` command, as dsrun hands it over in train.json.
//
// dsrun writes it once per job after checking every part of it; dsrank reads it; `resume` reads it
// back, changes what the user overrides, and writes it again. Who this rank is comes from the
// environment, never from here, so all ranks of a job read the same file.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds::config {

struct TrainJob {
  std::string model;                 // folder, config.json or the name of a preset
  std::vector<std::string> data;     // text files, folders or .bin token files, in this order
  std::vector<double> data_weights;  // of these paths, their shares of the samples; empty: no blend
  std::string token_dtype = "uint16";  // of .bin files: uint16 or uint32
  std::string tokenizer;               // a folder; empty: a text's bytes are its tokens
  std::string data_field;              // of .json files: where the rows are; empty: at the top
  // Keys of rows (tokenizer::RowOptions); empty: the usual ones.
  std::string text_field, messages_field, prompt_field, completion_field, tools_field;
  std::string role_field, content_field;
  std::string prompt_style;                    // of instructions: chat, alpaca or empty
  std::int64_t max_length = 0;                 // tokens at which a document is cut off; 0: none
  std::string truncation_mode = "keep_start";  // or keep_end
  bool assistant_only_loss = false;            // of completions, too
  std::string on_bad_data = "stop";            // or skip: texts that cannot be used
  std::string data_cache;              // where tokens of texts are kept; empty: this user's cache
  std::string packing = "stream";      // of documents into samples: stream, whole or none
  std::vector<std::string> eval_data;  // like data, but not learnt: its loss is reported
  double eval_split = 0.0;             // in its place, the share of `data` from its end on
  std::int64_t eval_every = 0;         // steps between evaluations; 0: behind the last step only
  bool save_best = false;              // keeps the checkpoint of the lowest loss of evaluations
  bool load_best = false;              // save_hf_dir gets that checkpoint's model; with save_best
  std::int64_t eval_patience = 0;      // ends behind so many that are no better; 0: never
  double max_minutes = 0.0;    // ends with a checkpoint when it has trained so long; 0: never
  double warmup_share = 0.0;   // of all steps; 0: ds_config has the warm-up's own steps
  std::int64_t seq_len = 256;  // tokens per sample
  std::int64_t steps = 0;      // total optimizer steps; 0: as many as `epochs` need
  std::int64_t epochs = 1;     // passes over the data; read only when steps is 0
  bool shuffle = true;
  std::uint64_t seed = 1234;          // weights without a file, shuffling, dropout
  std::int64_t save_every = 0;        // steps between checkpoints; 0: none
  std::int64_t save_total_limit = 0;  // checkpoints to keep; 0: all
  std::string checkpoint_dir;         // holds step-N folders
  std::string checkpoint_mark;  // a file that dsrun has made there; empty: nobody looks for it
  std::string resume_from;      // a step-N folder; empty: start at step 0
  std::int64_t start = 0;       // of the ranks, as their checkpoints tell it (DrawStart); 0: not
  std::string device = "auto";  // auto, cpu or cuda
  bool encrypt = false;         // what ranks of several hosts send each other
  // Decides what becomes of a step whose gradient is not finite: auto (as ds_config says), skip,
  // rewind or stop.
  std::string on_non_finite = "auto";
  std::string recompute = "auto";             // as ParseRecompute reads it
  std::int64_t mlp_tiles = 1;                 // feed-forward parts run on so many parts of the rows
  std::string sequence_kind = "ulysses";      // of ranks with parts of the same samples; or ring
  std::int64_t portion = 0;                   // of a sample, in attention; 0: all tokens at once
  std::string portions_in;                    // where they wait: "" (the device), cpu or a folder
  std::string pipeline_schedule = "1f1b";     // where there are stages: of pipeline::ScheduleKind
  std::int64_t pipeline_virtual_stages = 0;   // of each stage; 0: as many as the schedule takes
  bool no_decay_on_norms_and_biases = false;  // weight decay on matrices only
  double layer_decay = 1.0;      // a block's rate is this times that of the block behind it
  std::string ds_config = "{}";  // JSON text that CheckConfig has accepted
  std::vector<std::string> derived_keys;  // of ds_config, as CheckResult::derived, for `resume`
  std::string save_hf_dir;                // model.safetensors and config.json at the end; empty: no
  std::string router_aux_loss_coef;       // engine::TakeBalance reads it
  double neftune_noise_alpha = 0.0;       // of the noise on embeddings while training; 0: none
  std::vector<std::string> freeze;        // patterns of the parameters that are not trained
  std::int64_t lora_rank = 0;             // of the adapters that are trained instead; 0: none
  double lora_alpha = 0.0;                // 0: twice the rank
  std::vector<std::string> lora_targets;  // of linear layers (models::ReadTargets); empty: all
  bool lora_rslora = false;               // scaled by 1 / sqrt(rank)
  bool lora_dora = false;                 // with magnitudes of their own
  double lora_dropout = -1.0;             // below 0: as lora_adapter's folder says, or none
  std::string quantize_base;              // below adapters: nf4, nf4-double or int8; empty: not
  std::string lora_adapter;               // in place of these, a PEFT folder to go on from
  bool lora_merge = false;                // save_hf_dir gets the model with its adapters

  bool adapts() const { return lora_rank > 0 || !lora_adapter.empty(); }
  bool saves() const { return save_every > 0 || save_best || max_minutes > 0.0; }
  bool evaluates() const { return !eval_data.empty() || eval_split > 0.0; }

  friend bool operator==(const TrainJob&, const TrainJob&) = default;
};

// Tells a file of tokens from one of text, by its name.
bool IsTokenFile(const std::filesystem::path& path);
// Tells a file, folder or pattern of tokens of which Megatron-LM's index says where documents end.
bool HasTokenIndex(const std::filesystem::path& path);

// Indented JSON, every field present. Bytes that are not UTF-8, which JSON cannot hold, become
// U+FFFD.
std::string ToJson(const TrainJob& job);

// The inverse. Refuses unknown fields (naming the nearest known one), missing model or data, wrong
// types and values out of range. Fields left out keep their default.
StatusOr<TrainJob> TrainJobFromJson(std::string_view json);

}  // namespace ds::config
