#include "cli/train/train_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <filesystem>
#include <type_traits>

#include "cli/flags/add_switch.h"
#include "cli/flags/flag_parser.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/plan/model/lora_spec.h"
#include "runtime/plan/pipeline/schedule.h"

namespace ds::cli {
namespace {

template <typename T>
void Set(const std::optional<T>& given, T* value) {
  if (given.has_value()) *value = *given;
}

CLI::Validator RecomputeText() {
  return CLI::Validator(
      [](const std::string& text) {
        const auto choice = config::ParseRecompute(text);
        return choice.ok() ? std::string() : std::string(choice.status().message());
      },
      "");
}

// Adds a flag for a number of the ds_config, whose check judges its range.
template <typename Number>
void AddNumber(CLI::App& app, const char* name, std::optional<Number>* value, const char* doc) {
  app.add_option(FlagNames(name), *value, doc)
      ->check(std::is_integral_v<Number> ? AnyWholeNumber() : FiniteNumber())
      ->type_name("N");
}

void AddModelFlags(CLI::App& app, TrainFlags* flags) {
  BeginFlagGroup(app, "Model and configuration");
  OfferValues(
      app.add_option(FlagNames("model"), flags->model,
                     "a Hugging Face folder, a config.json, or a preset (default: gpt2-demo)"),
      {"DIR", "FILE", "PRESET"});
  app.add_option(FlagNames("deepspeed_config"), flags->deepspeed_config,
                 "the ds_config, or its text as base64 (default: a small one)")
      ->type_name("FILE");
  AddIgnoreUnknownKeys(app, &flags->ignore_unknown_keys);
}

void AddTextFlags(CLI::App& app, TrainFlags* flags) {
  OfferValues(
      app.add_option(FlagNames("tokenizer"), flags->tokenizer,
                     "the Hugging Face folder of the tokenizer, or 'bytes' (default: the model's "
                     "folder if it has a tokenizer, else bytes)"),
      {"DIR", "bytes"});
  app.add_option(FlagNames("data_field"), flags->data_field,
                 "the field of .json files that holds the rows (default: the file is the rows)")
      ->type_name("NAME");
  TakeOneOf(app.add_option(FlagNames("on_bad_data"), flags->on_bad_data,
                           "texts that cannot be used: stop (default), or skip and count them"),
            {"stop", "skip"});
  TakeOneOf(
      app.add_option(
          FlagNames("packing"), flags->packing,
          "how documents become samples: stream (default; joined, and split where a sample is "
          "full), whole (as many unsplit documents as fit), none (one document per sample)"),
      {"stream", "whole", "none"});
  app.add_option(FlagNames("data_cache"), flags->data_cache,
                 "folder on each host that caches the tokens of texts (default: ~/.cache/dsrun)")
      ->type_name("DIR");
}

void AddDataFlags(CLI::App& app, TrainFlags* flags) {
  BeginFlagGroup(app, "Data");
  app.add_option(FlagNames("data"), flags->data,
                 "text files, rows (.jsonl, .json, .csv, .tsv, .parquet, .arrow), .bin token files "
                 "(with or without Megatron-LM's .idx), folders, data sets of the hub or of "
                 "save_to_disk, and quoted patterns (default: a demo corpus); see dsrun help data")
      ->take_all()
      ->type_name("PATH");
  app.add_option(FlagNames("data_weights"), flags->data_weights,
                 "blend: proportion of the samples from each PATH of --data, independent of its "
                 "size, so that small ones repeat sooner (default: all data, joined)")
      ->take_all()
      ->check(PositiveNumber())
      ->type_name("X");
  TakeOneOf(app.add_option(FlagNames("token_dtype"), flags->token_dtype,
                           "data type of .bin files: uint16 (default) or uint32"),
            {"uint16", "uint32"});
  AddTextFlags(app, flags);
  app.add_option(FlagNames("seq_len"), flags->seq_len, "tokens per sample (default: 256)")
      ->check(WholeNumber(1))
      ->type_name("N");
  AddSwitch(app, "no_shuffle", &flags->no_shuffle, "keep the order of the samples");
  AddRowFlags(app, &flags->rows);
  AddDocumentFlags(app, &flags->rows);
}

void AddLengthFlags(CLI::App& app, TrainFlags* flags) {
  BeginFlagGroup(app, "Batch size and number of steps");
  app.add_option(FlagNames("steps"), flags->steps,
                 "total number of optimizer steps (default: from --epochs)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("epochs"), flags->epochs, "passes over the data (default: 1)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(
         FlagNames("max_minutes"), flags->max_minutes,
         "save a checkpoint and end after the step in which the training reaches M minutes, "
         "restarts included; a resumed run has M minutes again (default: no limit)")
      ->check(PositiveNumber())
      ->type_name("M");
  AddNumber(app, "per_device_train_batch_size", &flags->training.per_device_train_batch_size,
            "samples of a micro-batch on each rank");
  AddNumber(app, "gradient_accumulation_steps", &flags->training.gradient_accumulation_steps,
            "micro-batches per step");
}

void AddOptimizerFlags(CLI::App& app, TrainFlags* flags) {
  BeginFlagGroup(app, "Optimizer and learning rate");
  AddNumber(app, "learning_rate", &flags->training.learning_rate,
            "learning rate of the optimizer, after a warm-up");
  AddNumber(app, "adam_beta1", &flags->training.adam_beta1, "beta1 of Adam optimizers");
  AddNumber(app, "adam_beta2", &flags->training.adam_beta2, "beta2 of Adam optimizers");
  AddNumber(app, "adam_epsilon", &flags->training.adam_epsilon, "epsilon of Adam optimizers");
  AddNumber(app, "weight_decay", &flags->training.weight_decay, "weight decay of the optimizer");
  AddSwitch(app, "no_decay_on_norms_and_biases", &flags->no_decay_on_norms_and_biases,
            "apply weight decay to matrices only, as transformers' Trainer does");
  app.add_option(FlagNames("layer_decay"), flags->layer_decay,
                 "learning rate of each layer over that of the next layer, above 0 and at most 1 "
                 "(default: 1)")
      ->check(PositiveFraction())
      ->type_name("RATE");
  AddNumber(app, "max_grad_norm", &flags->training.max_grad_norm,
            "clip gradients to this norm; 0: no clipping");
  AddNumber(app, "warmup_steps", &flags->training.warmup_steps,
            "steps of the warm-up; below 1: its share of all steps");
  AddScheduleFlags(app, &flags->schedule);
}

void AddNumericsFlags(CLI::App& app, TrainFlags* flags) {
  BeginFlagGroup(app, "Precision, loss and random numbers");
  AddSwitch(app, "bf16", &flags->training.bf16, "train in bf16");
  AddSwitch(app, "fp16", &flags->training.fp16, "train in fp16");
  TakeOneOf(
      app.add_option(
          FlagNames("on_non_finite"), flags->on_non_finite,
          "when a gradient is not finite: skip the step, rewind (load the newest checkpoint and "
          "continue after the step's data), or stop (default: skip if the ds_config does)"),
      {"auto", "skip", "rewind", "stop"});
  OfferValues(
      app.add_option(
          FlagNames("router_aux_loss_coef"), flags->router_aux_loss_coef,
          "add the load-balancing loss of the experts: auto (with the coefficient of config.json, "
          "if the model has one), or a coefficient; 0: none (default: as config.json says)"),
      {"auto", "X"});
  app.add_option(FlagNames("neftune_noise_alpha"), flags->neftune_noise_alpha,
                 "NEFTune: add noise to the embeddings in training, at most X over the root of "
                 "(tokens of a sample times width) (default: 0, none)")
      ->check(NumberBetween(0.0, 1e9))
      ->type_name("X");
  app.add_option(FlagNames("seed"), flags->seed,
                 "random seed of initial weights and of the order of samples (default: 1234)")
      ->check(WholeNumber(0))
      ->type_name("N");
}

void AddParallelismFlags(CLI::App& app, TrainFlags* flags) {
  BeginFlagGroup(app, "Parallelism and communication");
  AddNumber(app, "tp", &flags->training.tp,
            "tensor parallelism: N ranks share each matrix, on the same samples");
  AddNumber(app, "pp", &flags->training.pp,
            "pipeline parallelism: N stages, each with some of the layers");
  TakeOneOf(app.add_option(
                FlagNames("pp_schedule"), flags->pp_schedule,
                "schedule of the stages of --pp: 1f1b (default; holds the fewest micro-batches), "
                "gpipe, interleaved (less idle time, more communication), zb-h1 (less idle time, "
                "holds inputs longer) or zb-v (both)"),
            pipeline::ScheduleNames());
  app.add_option(
         FlagNames("pp_virtual_stages"), flags->pp_virtual_stages,
         "with --pp_schedule interleaved: virtual stages (runs of layers) per stage (default: 2)")
      ->check(WholeNumber(1))
      ->type_name("N");
  AddNumber(app, "sp", &flags->training.sp,
            "sequence parallelism: N ranks share the tokens of each sample");
  TakeOneOf(app.add_option(
                FlagNames("sp_kind"), flags->sp_kind,
                "attention of the ranks of --sp: ulysses (default; each rank computes some heads "
                "over all tokens) or ring (context parallelism: each rank computes its own "
                "tokens, keys and values circulate; any number of ranks)"),
            {"ulysses", "ring"});
  AddNumber(app, "ep", &flags->training.ep,
            "expert parallelism: N ranks share the experts of each layer");
  AddSwitch(app, "encrypt", &flags->encrypt,
            "encrypt the traffic between CPU ranks of several hosts (TLS 1.3)");
}

void AddMemoryFlags(CLI::App& app, TrainFlags* flags) {
  BeginFlagGroup(app, "Memory and offload");
  OfferValues(
      app.add_option(
             FlagNames("recompute"), flags->recompute,
             "activation checkpointing; activations that the backward pass recomputes: none, "
             "full (of every layer), every:N (of every Nth layer), attention (default: full if "
             "the ds_config has activation_checkpointing, else none)")
          ->check(RecomputeText()),
      config::RecomputeForms());
  app.add_option(FlagNames("sp_chunk"), flags->sp_chunk,
                 "FPDT: compute attention in chunks of TOKENS tokens of a sample, on one rank or "
                 "on the ranks of --sp (ulysses), and recompute its projections in the backward "
                 "pass (default: all tokens at once)")
      ->check(WholeNumber(1))
      ->type_name("TOKENS");
  app.add_option(FlagNames("sp_offload"), flags->sp_offload,
                 "with --sp_chunk: offload the keys, values and results of chunks to cpu (host "
                 "memory; moves nothing on CPU ranks) or to files in a folder of a local drive "
                 "(default: keep them on the device)")
      ->type_name("cpu|FOLDER");
  app.add_option(FlagNames("tile_mlp"), flags->tile_mlp,
                 "tiled MLP: compute the feed-forward part of each layer in N tiles of tokens, and "
                 "again in the backward pass (default: 1, all at once)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_flag(FlagNames("allow_overcommit"), flags->allow_overcommit,
               "start ranks that will hold more memory than their host has available");
}

void AddAdapterFlags(CLI::App& app, TrainFlags* flags) {
  app.add_option(FlagNames("lora_rank"), flags->lora_rank,
                 "train LoRA adapters of this rank and freeze the model (default: 0, none)")
      ->check(WholeNumber(0, models::kMostLoraRank))
      ->type_name("N");
  app.add_option(FlagNames("lora_alpha"), flags->lora_alpha,
                 "scale adapters by X over the rank (default: twice the rank)")
      ->check(PositiveNumber())
      ->type_name("X");
  app.add_option(FlagNames("lora_dropout"), flags->lora_dropout,
                 "dropout probability of the adapters' inputs in training (default: from the "
                 "folder of --lora_adapter, else 0)")
      ->check(FractionBelow1())
      ->type_name("P");
  OfferValues(
      app.add_option(
             FlagNames("lora_targets"), flags->lora_targets,
             "the linear layers that get adapters, as PEFT's target_modules: last, partial or "
             "full names, one regular expression of full names, or all-linear (default)")
          ->take_all(),
      {"all-linear", "NAME"});
  AddSwitch(app, "lora_rslora", &flags->lora_rslora,
            "scale adapters by alpha over the root of the rank");
  AddSwitch(app, "lora_dora", &flags->lora_dora,
            "DoRA: train the norms of the adapted weights' rows separately from their directions");
  TakeOneOf(app.add_option(
                FlagNames("quantize_base"), flags->quantize_base,
                "QLoRA: quantize the linear layers below adapters: nf4 (4.5 bits per weight), "
                "nf4-double (4.13; quantizes the scales, too) or int8 (default: not quantized)"),
            {"nf4", "nf4-double", "int8"});
  app.add_option(FlagNames("lora_adapter"), flags->lora_adapter,
                 "continue training the adapters of a PEFT folder, as it describes them")
      ->type_name("DIR");
  AddSwitch(app, "lora_merge", &flags->lora_merge,
            "--save_hf writes the full model with merged adapters instead of a PEFT folder");
}

void AddFineTuningFlags(CLI::App& app, TrainFlags* flags) {
  BeginFlagGroup(app, "Fine-tuning");
  app.add_option(FlagNames("freeze"), flags->freeze,
                 "parameters that are not trained, by patterns of their full names "
                 "('model.layers.0.*')")
      ->take_all()
      ->type_name("PATTERN");
  AddAdapterFlags(app, flags);
}

void AddEvaluationFlags(CLI::App& app, TrainFlags* flags) {
  BeginFlagGroup(app, "Evaluation");
  app.add_option(
         FlagNames("eval_data"), flags->eval_data,
         "evaluation data, as --data: loss, perplexity and token accuracy are reported after "
         "the last step (default: none)")
      ->take_all()
      ->type_name("PATH");
  app.add_option(FlagNames("eval_split"), flags->eval_split,
                 "instead of --eval_data: hold out this share at the end of --data")
      ->check(PositiveFraction())
      ->type_name("SHARE");
  app.add_option(FlagNames("eval_every"), flags->eval_every,
                 "steps between evaluations (default: only after the last step)")
      ->check(WholeNumber(0))
      ->type_name("N");
  app.add_option(
         FlagNames("eval_patience"), flags->eval_patience,
         "stop the training after N consecutive evaluations without a new best (default: 0, never)")
      ->check(WholeNumber(0))
      ->type_name("N");
}

void AddCheckpointFlags(CLI::App& app, TrainFlags* flags) {
  BeginFlagGroup(app, "Checkpoints and the trained model");
  app.add_option(FlagNames("save_every"), flags->save_every,
                 "steps between checkpoints (default: none)")
      ->check(WholeNumber(0))
      ->type_name("N");
  app.add_option(FlagNames("save_total_limit"), flags->save_total_limit,
                 "keep the newest N checkpoints, including the best of --save_best, and remove "
                 "older ones (default: 0, keep all)")
      ->check(WholeNumber(0))
      ->type_name("N");
  AddSwitch(app, "save_best", &flags->save_best,
            "keep a checkpoint of the evaluation with the lowest loss");
  AddSwitch(app, "load_best_model_at_end", &flags->load_best_model_at_end,
            "--save_best, and --save_hf writes the model of that checkpoint instead of the "
            "last step's");
  app.add_option(FlagNames("save_hf"), flags->save_hf,
                 "write model.safetensors and config.json to DIR at the end; a folder with another "
                 "model is rejected")
      ->type_name("DIR");
}

}  // namespace

void AddTrainFlags(CLI::App& app, TrainFlags* flags) {
  AddModelFlags(app, flags);
  AddDataFlags(app, flags);
  AddLengthFlags(app, flags);
  AddOptimizerFlags(app, flags);
  AddNumericsFlags(app, flags);
  AddParallelismFlags(app, flags);
  AddMemoryFlags(app, flags);
  AddFineTuningFlags(app, flags);
  AddEvaluationFlags(app, flags);
  AddCheckpointFlags(app, flags);
}

void AddIgnoreUnknownKeys(CLI::App& app, bool* ignore) {
  app.add_flag(FlagNames("ignore_unknown_keys"), *ignore,
               "ignore unknown keys of the ds_config, with a warning");
}

namespace {

// Returns "cpu" or the absolute path of a folder. "" stands for the device, as without the flag.
std::string FindChunkStorage(const std::string& given) {
  if (given.empty()) return given;
  return given == "cpu" ? given : std::filesystem::absolute(given).lexically_normal().string();
}

void ApplyAdapterFlags(const TrainFlags& flags, config::TrainJob* job) {
  if (!flags.freeze.empty()) job->freeze = flags.freeze;
  Set(flags.lora_rank, &job->lora_rank);
  Set(flags.lora_alpha, &job->lora_alpha);
  if (!flags.lora_targets.empty()) job->lora_targets = flags.lora_targets;
  Set(flags.lora_rslora, &job->lora_rslora);
  Set(flags.lora_dora, &job->lora_dora);
  Set(flags.lora_dropout, &job->lora_dropout);
  Set(flags.quantize_base, &job->quantize_base);
  Set(flags.lora_merge, &job->lora_merge);
}

void ApplyEvaluationFlags(const TrainFlags& flags, config::TrainJob* job) {
  Set(flags.eval_split, &job->eval_split);
  Set(flags.eval_every, &job->eval_every);
  Set(flags.eval_patience, &job->eval_patience);
  Set(flags.save_best, &job->save_best);
  Set(flags.load_best_model_at_end, &job->load_best);
  if (job->load_best) job->save_best = true;
}

}  // namespace

void ApplyTrainFlags(const TrainFlags& flags, config::TrainJob* job) {
  Set(flags.token_dtype, &job->token_dtype);
  Set(flags.data_field, &job->data_field);
  ApplyRowFlags(flags.rows, job);
  Set(flags.on_bad_data, &job->on_bad_data);
  if (!flags.data_cache.empty()) {
    job->data_cache = std::filesystem::absolute(flags.data_cache).lexically_normal().string();
  }
  Set(flags.router_aux_loss_coef, &job->router_aux_loss_coef);
  Set(flags.neftune_noise_alpha, &job->neftune_noise_alpha);
  ApplyAdapterFlags(flags, job);
  Set(flags.packing, &job->packing);
  ApplyEvaluationFlags(flags, job);
  Set(flags.max_minutes, &job->max_minutes);
  Set(flags.seq_len, &job->seq_len);
  Set(flags.seed, &job->seed);
  Set(flags.save_every, &job->save_every);
  Set(flags.save_total_limit, &job->save_total_limit);
  Set(flags.steps, &job->steps);
  Set(flags.epochs, &job->epochs);
  Set(flags.on_non_finite, &job->on_non_finite);
  Set(flags.layer_decay, &job->layer_decay);
  Set(flags.recompute, &job->recompute);
  Set(flags.tile_mlp, &job->mlp_tiles);
  Set(flags.sp_kind, &job->sequence_kind);
  Set(flags.sp_chunk, &job->sp_chunk);
  if (flags.sp_offload.has_value()) job->sp_offload = FindChunkStorage(*flags.sp_offload);
  if (flags.pp_schedule.has_value()) job->pipeline_virtual_stages = 0;  // of the old schedule
  Set(flags.pp_schedule, &job->pipeline_schedule);
  Set(flags.pp_virtual_stages, &job->pipeline_virtual_stages);
  // Steps and epochs are alternatives; the one given now replaces the resumed job's.
  if (flags.epochs.has_value() && !flags.steps.has_value()) job->steps = 0;
  if (flags.no_shuffle.has_value()) job->shuffle = !*flags.no_shuffle;
  Set(flags.encrypt, &job->encrypt);
  Set(flags.no_decay_on_norms_and_biases, &job->no_decay_on_norms_and_biases);
  if (!flags.save_hf.empty()) {
    job->save_hf_dir = std::filesystem::absolute(flags.save_hf).lexically_normal().string();
  }
}

}  // namespace ds::cli
