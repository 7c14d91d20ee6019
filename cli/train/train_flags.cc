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

void AddTextFlags(CLI::App& app, TrainFlags* flags) {
  app.add_option(FlagNames("tokenizer"), flags->tokenizer,
                 "the Hugging Face folder whose tokenizer cuts texts, or 'bytes' (default: the "
                 "model's folder where it has one, else bytes)")
      ->type_name("DIR");
  app.add_option(FlagNames("data_field"), flags->data_field,
                 "the field of .json files that holds the rows (default: the file is the rows)")
      ->type_name("NAME");
  app.add_option(FlagNames("on_bad_data"), flags->on_bad_data,
                 "texts that cannot be used: stop (default), or skip and count them")
      ->check(CLI::IsMember({"stop", "skip"}).description(""))
      ->type_name("POLICY");
  app.add_option(
         FlagNames("packing"), flags->packing,
         "how documents become samples: stream (default; cut where a sample is full), whole "
         "(as many as fit, none cut), none (one each)")
      ->check(CLI::IsMember({"stream", "whole", "none"}).description(""))
      ->type_name("HOW");
  app.add_option(FlagNames("data_cache"), flags->data_cache,
                 "where the tokens of texts are kept on each host (default: ~/.cache/dsrun)")
      ->type_name("DIR");
}

void AddInputFlags(CLI::App& app, TrainFlags* flags) {
  app.add_option(FlagNames("model"), flags->model,
                 "a Hugging Face folder, a config.json, or a preset (default: gpt2-demo)")
      ->type_name("MODEL");
  app.add_option(FlagNames("data"), flags->data,
                 "text files, rows (.jsonl, .json, .csv, .tsv, .parquet, .arrow), .bin token files "
                 "(with Megatron-LM's .idx or without), folders, data sets of the hub or of "
                 "save_to_disk, and quoted patterns (default: a demo corpus); see dsrun help data")
      ->take_all()
      ->type_name("PATH");
  app.add_option(FlagNames("data_weights"), flags->data_weights,
                 "blend: how much of the samples each PATH of --data gives, whatever its size, so "
                 "that small ones come again sooner (default: all, joined)")
      ->take_all()
      ->check(PositiveNumber())
      ->type_name("X");
  app.add_option(FlagNames("deepspeed_config"), flags->deepspeed_config,
                 "the ds_config, or its text as base64 (default: a small one)")
      ->type_name("FILE");
  AddIgnoreUnknownKeys(app, &flags->ignore_unknown_keys);
  app.add_option(FlagNames("token_dtype"), flags->token_dtype,
                 "of .bin files: uint16 (default) or uint32")
      ->check(CLI::IsMember({"uint16", "uint32"}).description(""))
      ->type_name("TYPE");
  AddTextFlags(app, flags);
  app.add_option(FlagNames("seq_len"), flags->seq_len, "tokens per sample (default: 256)")
      ->check(WholeNumber(1))
      ->type_name("N");
}

void AddLengthFlags(CLI::App& app, TrainFlags* flags) {
  app.add_option(FlagNames("steps"), flags->steps, "optimizer steps in all (default: by epochs)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("epochs"), flags->epochs, "passes over the data (default: 1)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("seed"), flags->seed, "of weights and order (default: 1234)")
      ->check(WholeNumber(0))
      ->type_name("N");
  AddSwitch(app, "no_shuffle", &flags->no_shuffle, "take the samples in their order");
  app.add_option(FlagNames("save_every"), flags->save_every,
                 "steps between checkpoints (default: none)")
      ->check(WholeNumber(0))
      ->type_name("N");
  app.add_option(FlagNames("save_total_limit"), flags->save_total_limit,
                 "keep the newest N checkpoints (the best of --save_best among them) and remove "
                 "older ones (default: 0, keep all)")
      ->check(WholeNumber(0))
      ->type_name("N");
  app.add_option(FlagNames("max_minutes"), flags->max_minutes,
                 "end with a checkpoint after the step in which the training reaches M minutes, "
                 "restarts included; a resumed run has M minutes again (default: no limit)")
      ->check(PositiveNumber())
      ->type_name("M");
  app.add_option(
         FlagNames("save_hf"), flags->save_hf,
         "write model.safetensors and config.json there at the end; a folder that holds another "
         "model is refused")
      ->type_name("DIR");
}

void AddEvaluationFlags(CLI::App& app, TrainFlags* flags) {
  app.add_option(
         FlagNames("eval_data"), flags->eval_data,
         "evaluation data, as --data: loss, perplexity and token accuracy are reported after "
         "the last step (default: none)")
      ->take_all()
      ->type_name("PATH");
  app.add_option(FlagNames("eval_split"), flags->eval_split,
                 "in place of --eval_data: hold out this share at the end of --data")
      ->check(PositiveFraction())
      ->type_name("SHARE");
  app.add_option(FlagNames("eval_every"), flags->eval_every,
                 "steps between evaluations (default: none but the last)")
      ->check(WholeNumber(0))
      ->type_name("N");
  AddSwitch(app, "save_best", &flags->save_best,
            "keep a checkpoint of the evaluation with the lowest loss");
  AddSwitch(app, "load_best_model_at_end", &flags->load_best_model_at_end,
            "--save_best, and --save_hf writes the model of that checkpoint instead of the "
            "last step's");
  app.add_option(FlagNames("eval_patience"), flags->eval_patience,
                 "end the training after N evaluations in a row without a new best (default: 0, "
                 "never)")
      ->check(WholeNumber(0))
      ->type_name("N");
}

void AddPipelineFlags(CLI::App& app, TrainFlags* flags) {
  app.add_option(FlagNames("sp_kind"), flags->sp_kind,
                 "how the ranks of --sp compute attention: ulysses (default; each for some heads, "
                 "over all tokens) or ring (context parallelism: each for its tokens, past which "
                 "keys and values go; any number of ranks)")
      ->check(CLI::IsMember({"ulysses", "ring"}).description(""))
      ->type_name("NAME");
  app.add_option(FlagNames("sp_chunk"), flags->sp_chunk,
                 "attention takes so many tokens of a sample at a time, on one rank or on those of "
                 "--sp (ulysses), and computes its projections again in the backward pass (FPDT; "
                 "default: all tokens at once)")
      ->check(WholeNumber(1))
      ->type_name("TOKENS");
  app.add_option(FlagNames("sp_offload"), flags->sp_offload,
                 "with --sp_chunk: where the keys, values and results of chunks wait: cpu (memory "
                 "of the host; on CPU ranks that moves nothing) or a folder of a local drive, for "
                 "files (default: the device)")
      ->type_name("cpu|FOLDER");
  app.add_option(FlagNames("pp_schedule"), flags->pp_schedule,
                 "the order in which the stages of --pp compute: 1f1b (default; holds the fewest "
                 "micro-batches), gpipe, interleaved (waits less, sends more), zb-h1 (waits less, "
                 "holds inputs longer) or zb-v (both)")
      ->check(CLI::IsMember({"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"}).description(""))
      ->type_name("NAME");
  app.add_option(FlagNames("pp_virtual_stages"), flags->pp_virtual_stages,
                 "with --pp_schedule interleaved: into how many runs of layers each stage is cut "
                 "(default: 2)")
      ->check(WholeNumber(1))
      ->type_name("N");
}

void AddMethodFlags(CLI::App& app, TrainFlags* flags) {
  app.add_option(
         FlagNames("on_non_finite"), flags->on_non_finite,
         "when a gradient is not finite: skip the step, rewind to the newest checkpoint and "
         "continue after the step's data, or stop (default: skip where the ds_config does)")
      ->check(CLI::IsMember({"auto", "skip", "rewind", "stop"}).description(""))
      ->type_name("POLICY");
  app.add_option(
         FlagNames("recompute"), flags->recompute,
         "activations to compute again in the backward pass instead of keeping them: none, "
         "full (of every layer), every:N (of every Nth layer), attention (default: full where the "
         "ds_config has activation_checkpointing, else none)")
      ->check(RecomputeText())
      ->type_name("WHICH");
  app.add_option(FlagNames("tile_mlp"), flags->tile_mlp,
                 "tiled MLP: run each layer's feed-forward part on N parts of its tokens in turn, "
                 "and again in the backward pass (default: 1, all at once)")
      ->check(WholeNumber(1))
      ->type_name("N");
  app.add_option(FlagNames("router_aux_loss_coef"), flags->router_aux_loss_coef,
                 "add the experts' balance loss: auto (with the coefficient of config.json, where "
                 "the model has one), or the coefficient; 0: none (default: as config.json says)")
      ->type_name("X");
  app.add_option(FlagNames("neftune_noise_alpha"), flags->neftune_noise_alpha,
                 "NEFTune: while training, embeddings get noise of up to this over the root of a "
                 "sample's tokens times the width (default: 0, none)")
      ->check(NumberBetween(0.0, 1e9))
      ->type_name("X");
  AddSwitch(app, "no_decay_on_norms_and_biases", &flags->no_decay_on_norms_and_biases,
            "weight decay on matrices only, as transformers' Trainer has it");
  app.add_option(FlagNames("layer_decay"), flags->layer_decay,
                 "a layer's learning rate is this times the next layer's, above 0 and at most 1 "
                 "(default: 1)")
      ->check(PositiveFraction())
      ->type_name("RATE");
  AddSwitch(app, "encrypt", &flags->encrypt,
            "encrypt the traffic between CPU ranks of several hosts (TLS 1.3)");
  app.add_flag(FlagNames("allow_overcommit"), flags->allow_overcommit,
               "start ranks that will hold more memory than their host has available");
}

void AddAdapterFlags(CLI::App& app, TrainFlags* flags) {
  app.add_option(FlagNames("freeze"), flags->freeze,
                 "parameters that are not trained, by patterns of their full names "
                 "('model.layers.0.*')")
      ->take_all()
      ->type_name("PATTERN");
  app.add_option(FlagNames("lora_rank"), flags->lora_rank,
                 "train LoRA adapters of this rank and freeze the model (default: 0, none)")
      ->check(WholeNumber(0, models::kMostLoraRank))
      ->type_name("N");
  app.add_option(FlagNames("lora_alpha"), flags->lora_alpha,
                 "adapters are scaled by this over the rank (default: twice the rank)")
      ->check(PositiveNumber())
      ->type_name("X");
  app.add_option(FlagNames("lora_dropout"), flags->lora_dropout,
                 "the share of the adapters' inputs that is dropped while training (default: what "
                 "the folder of --lora_adapter says, else 0)")
      ->check(FractionBelow1())
      ->type_name("P");
  app.add_option(FlagNames("lora_targets"), flags->lora_targets,
                 "the linear layers that get adapters, as PEFT's target_modules: last, partial or "
                 "full names, one regular expression of full names, or all-linear (default)")
      ->take_all()
      ->type_name("NAME");
  AddSwitch(app, "lora_rslora", &flags->lora_rslora,
            "scale adapters by alpha over the root of the rank");
  AddSwitch(app, "lora_dora", &flags->lora_dora,
            "DoRA: train the norms of the adapted weights' rows apart from their directions");
  app.add_option(
         FlagNames("quantize_base"), flags->quantize_base,
         "QLoRA: the linear layers below adapters have so few bits a weight: nf4 (4.5), "
         "nf4-double (4.13; scales quantised, too) or int8 (default: they stay as they are)")
      ->check(CLI::IsMember({"nf4", "nf4-double", "int8"}).description(""))
      ->type_name("FORMAT");
  app.add_option(FlagNames("lora_adapter"), flags->lora_adapter,
                 "go on with the adapters of a PEFT folder, as that describes them")
      ->type_name("DIR");
  AddSwitch(app, "lora_merge", &flags->lora_merge,
            "--save_hf writes the whole model, adapters merged, in place of a PEFT folder");
}

}  // namespace

void AddTrainFlags(CLI::App& app, TrainFlags* flags) {
  AddInputFlags(app, flags);
  AddLengthFlags(app, flags);
  AddRowFlags(app, &flags->rows);
  AddDocumentFlags(app, &flags->rows);
  AddEvaluationFlags(app, flags);
  AddPipelineFlags(app, flags);
  AddMethodFlags(app, flags);
  AddAdapterFlags(app, flags);
  AddScheduleFlags(app, &flags->schedule);
  AddTrainingFlags(app, &flags->training);
}

void AddIgnoreUnknownKeys(CLI::App& app, bool* ignore) {
  app.add_flag(FlagNames("ignore_unknown_keys"), *ignore,
               "pass over keys of the ds_config that dsrun does not know, with a warning");
}

void AddTrainingFlags(CLI::App& app, config::TrainingFlags* flags) {
  constexpr const char* kGroup = "What the ds_config leaves open (absent or \"auto\")";
  const auto add = [&](const char* name, auto* value, const char* doc) {
    CLI::Option* const option = app.add_option(FlagNames(name), *value, doc);
    using Number = typename std::remove_pointer_t<decltype(value)>::value_type;
    option->check(std::is_integral_v<Number> ? AnyWholeNumber() : FiniteNumber());
    option->type_name("N")->group(kGroup);
  };
  add("per_device_train_batch_size", &flags->per_device_train_batch_size, "micro-batch of a rank");
  add("gradient_accumulation_steps", &flags->gradient_accumulation_steps, "micro-batches a step");
  add("learning_rate", &flags->learning_rate, "of the optimizer, and where a warm-up ends");
  add("adam_beta1", &flags->adam_beta1, "of the optimizer");
  add("adam_beta2", &flags->adam_beta2, "of the optimizer");
  add("adam_epsilon", &flags->adam_epsilon, "of the optimizer");
  add("weight_decay", &flags->weight_decay, "of the optimizer");
  add("max_grad_norm", &flags->max_grad_norm, "gradients are clipped to it; 0: not at all");
  add("warmup_steps", &flags->warmup_steps, "steps of the warm-up, or below 1 their share of all");
  add("tp", &flags->tp, "tensor parallelism: ranks that share each matrix, on the same samples");
  add("sp", &flags->sp, "sequence parallelism: ranks that share the tokens of each sample");
  add("pp", &flags->pp, "pipeline parallelism: stages, each with some of the layers");
  add("ep", &flags->ep, "expert parallelism: ranks that share a layer's experts");
  AddSwitch(app, "bf16", &flags->bf16, "train in bf16")->group(kGroup);
  AddSwitch(app, "fp16", &flags->fp16, "train in fp16")->group(kGroup);
}

namespace {

// Returns "cpu" or the absolute path of a folder. "" stands for the device, as without the flag.
std::string FindPortionPlace(const std::string& given) {
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
  Set(flags.sp_chunk, &job->portion);
  if (flags.sp_offload.has_value()) job->portions_in = FindPortionPlace(*flags.sp_offload);
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
