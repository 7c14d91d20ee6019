#include "cli/commands/foreign_train_flags.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "cli/translate/argument_table.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

// Trainer's own defaults are 3.0 epochs, and 500 steps or a fraction.
constexpr FlagAlias Count(std::string_view name, std::string_view of) {
  return {.name = name, .of = of, .is_count = true};
}

// A comment names the programs of each group of names with the same meaning.
constexpr FlagAlias kAliases[] = {
    // Model and data: transformers' scripts and TRL, Megatron-LM.
    {"model_name_or_path", "model"},
    {"tokenizer_name", "tokenizer"},
    {"tokenizer_name_or_path", "tokenizer"},
    {"train_file", "data"},
    {"data_path", "data"},
    {"validation_file", "eval_data"},
    {"block_size", "seq_len"},
    {"seq_length", "seq_len"},
    {"training.seq_len", "seq_len"},
    // DeepSpeed's own --deepspeed is a switch, and its --deepspeed_config names the file.
    {"deepspeed", "deepspeed_config", "", /*may_be_bare=*/true},
    // How long: Trainer, Accelerate's scripts, Megatron-LM, torchtitan.
    Count("max_steps", "steps"),
    {"max_train_steps", "steps"},
    {"train_iters", "steps"},
    {"training.steps", "steps"},
    Count("num_train_epochs", "epochs"),
    Count("num_epochs", "epochs"),
    Count("save_steps", "save_every"),
    {"save_interval", "save_every"},
    {"checkpoint.interval", "save_every"},
    Count("eval_steps", "eval_every"),
    {"eval_interval", "eval_every"},
    // A step.
    {"micro_batch_size", "per_device_train_batch_size"},
    {"per_gpu_train_batch_size", "per_device_train_batch_size"},
    {"training.local_batch_size", "per_device_train_batch_size"},
    {"lr", "learning_rate"},
    {"optimizer.lr", "learning_rate"},
    {"adam_eps", "adam_epsilon"},
    {"clip_grad", "max_grad_norm"},
    {"training.max_norm", "max_grad_norm"},
    {"num_warmup_steps", "warmup_steps"},
    {"lr_warmup_iters", "warmup_steps"},
    {"lr_scheduler.warmup_steps", "warmup_steps"},
    {"bf16", "bf16=true", "bf16=false"},
    {"fp16", "fp16=true", "fp16=false"},
    {"gradient_checkpointing", "recompute=full", "recompute=none"},
    {"activation_checkpointing", "recompute=full", "recompute=none"},
    {"use_cpu", "device=cpu", "device=auto"},
    {"no_cuda", "device=cpu", "device=auto"},
    // Ranks: Megatron-LM, guides, torchtitan.
    {"tensor_model_parallel_size", "tp"},
    {"tensor_parallel_size", "tp"},
    {"tp_size", "tp"},
    {"parallelism.tensor_parallel_degree", "tp"},
    {"pipeline_model_parallel_size", "pp"},
    {"pipeline_parallel_size", "pp"},
    {"pp_size", "pp"},
    {"parallelism.pipeline_parallel_degree", "pp"},
    {"expert_model_parallel_size", "ep"},
    {"moe_expert_parallel_size", "ep"},
    {"ep_size", "ep"},
    {"parallelism.expert_parallel_degree", "ep"},
    {"sequence_parallel_size", "sp"},
    {"ds_sequence_parallel_size", "sp"},
    // Adapters: PEFT and TRL.
    {"lora_target_modules", "lora_targets"},
    {"use_rslora", "lora_rslora=true", "lora_rslora=false"},
    {"use_dora", "lora_dora=true", "lora_dora=false"},
};

constexpr std::string_view kModel = "--model DIR: its config.json has it, so leave it out";
constexpr std::string_view kRank =
    "write --lora_rank {} and --lora_alpha X (its default here is twice the rank)";
constexpr std::string_view kRing = "write --sp {} --sp_kind ring";
constexpr std::string_view kMetrics =
    "RUN_DIR/metrics.jsonl has a line for every step; leave it out";
constexpr std::string_view kTokenizer = "write --tokenizer DIR, a Hugging Face folder";
constexpr std::string_view kResume = "dsrun resume RUN_DIR resumes a run; leave it out";
constexpr std::string_view kFused = "attention uses a fused kernel if one fits; leave it out";
constexpr std::string_view kRecompute =
    "write --recompute full (of every layer), attention, or every:N";
constexpr std::string_view kVirtual = "write --pp_schedule interleaved --pp_virtual_stages N";
constexpr std::string_view kOffload =
    R"(write "zero_optimization": {"offload_optimizer": {"device": "cpu"}} into the ds_config)";
constexpr std::string_view kExperts =
    R"(write "moe": {"enabled": true, "{name}": {}} into the ds_config)";
constexpr std::string_view kExpertsText =
    R"(write "moe": {"enabled": true, "{name}": "{}"} into the ds_config)";
constexpr std::string_view kNf4 = "write --quantize_base nf4";
constexpr std::string_view kHeldOut = "write --eval_split SHARE, the share that is not trained on";
constexpr std::string_view kRates =
    "write the optimizer and the scheduler into the ds_config, or see --lr_schedule";
constexpr std::string_view kPrecision = "write --bf16 or --fp16, or nothing for fp32";

constexpr std::string_view kWarmup = "write --warmup_steps {}: below 1 it is a share of all steps";
// --warmup_steps 1.0 would mean one step.
constexpr std::string_view kIntegerWarmup =
    "write --warmup_steps N with the number of steps: {} is not a share below 1";
constexpr std::string_view kTruncate =
    "write --max_length {} to truncate longer documents, or --seq_len {} to make more samples of "
    "the remainder";

struct Meaning {
  std::string_view name;
  std::string_view instead;  // {} stands for the value, {name} for the name
};

constexpr Meaning kMeanings[] = {
    // Trainer and its scripts, TRL.
    {"output_dir",
     "write --save_hf {} for the trained model; checkpoints are in the run's folder (dsrun "
     "--run_dir DIR train ...)"},
    {"logging_steps", kMetrics},
    {"report_to",
     "metrics go to RUN_DIR/metrics.jsonl, and to files where the ds_config has csv_monitor or "
     "tensorboard; leave it out"},
    {"eval_strategy", "write --eval_every N, with --eval_data or --eval_split"},
    {"evaluation_strategy", "write --eval_every N, with --eval_data or --eval_split"},
    {"save_strategy", "write --save_every N, or nothing for no checkpoints"},
    {"max_seq_length", kTruncate},
    {"max_seq_len", kTruncate},
    {"warmup_ratio", kWarmup},
    {"lr_warmup_fraction", kWarmup},
    {"lr_scheduler", "write --lr_scheduler_type {}"},
    {"dataset", "dsrun downloads nothing; give its files to --data"},
    {"optim", "write the optimizer into the ds_config: \"optimizer\": {\"type\": ...}"},
    {"resume_from_checkpoint", kResume},
    {"dtype", kPrecision},
    {"torch_dtype", kPrecision},
    {"mixed_precision", kPrecision},
    {"attn_implementation", kFused},
    {"use_peft",
     "write --lora_rank N; TRL's defaults are --lora_rank 16 --lora_alpha 32 --lora_dropout 0.05"},
    {"lora_r", kRank},
    {"lora_dim", kRank},
    {"lora_modules_to_save", "parameters next to adapters stay frozen; leave it out"},
    {"load_in_4bit", kNf4},
    {"use_4bit", kNf4},
    {"bnb_4bit_quant_type", kNf4},
    {"use_bnb_nested_quant", "write --quantize_base nf4-double"},
    {"load_in_8bit", "write --quantize_base int8"},
    // DeepSpeed-Chat and guides.
    {"task", "train has one task, causal language modeling; leave it out"},
    {"zero_stage", R"(write "zero_optimization": {"stage": {}} into the ds_config)"},
    {"offload", kOffload},
    {"data_split", kHeldOut},
    {"lora_module_name", "write --lora_targets NAME ..."},
    {"only_optimize_lora", "adapters alone are trained with --lora_rank; leave it out"},
    {"batch_size",
     "write --per_device_train_batch_size N, a rank's samples of a pass, or train_batch_size in "
     "the "
     "ds_config"},
    {"moe", R"(write "moe": {"enabled": true} into the ds_config, or --ep N)"},
    {"capacity_factor", kExperts},
    {"min_capacity", kExperts},
    {"noisy_gate_policy", kExpertsText},
    {"mlp_type", kExpertsText},
    {"top_k", R"(write "moe": {"enabled": true, "k": {}} into the ds_config)"},
    {"local_rank", "ranks read it from the environment; leave it out"},
    // Megatron-LM.
    {"global_batch_size",
     R"(write "train_batch_size": {} into the ds_config, or --gradient_accumulation_steps N)"},
    {"context_parallel_size", kRing},
    {"virtual_pipeline_model_parallel_size", kVirtual},
    {"num_layers_per_virtual_pipeline_stage", kVirtual},
    {"sequence_parallel", "write --sp N for N ranks with parts of a sample each"},
    {"use_distributed_optimizer", R"(write "zero_optimization": {"stage": 1} into the ds_config)"},
    {"recompute_granularity", kRecompute},
    {"recompute_method", kRecompute},
    {"recompute_num_layers", kRecompute},
    {"recompute_activations", "write --recompute attention"},
    {"checkpoint_activations", kRecompute},
    {"num_layers", kModel},
    {"hidden_size", kModel},
    {"num_attention_heads", kModel},
    {"ffn_hidden_size", kModel},
    {"max_position_embeddings", kModel},
    {"num_experts", kModel},
    {"moe_router_topk", kModel},
    {"tokenizer_type", kTokenizer},
    {"tokenizer_model", kTokenizer},
    {"vocab_file", kTokenizer},
    {"merge_file", kTokenizer},
    {"split", kHeldOut},
    {"lr_decay_style", kRates},
    {"lr_decay_iters", kRates},
    {"min_lr", kRates},
    {"optimizer", kRates},
    {"log_interval", kMetrics},
    {"distributed_backend", "ranks on GPUs talk by NCCL; leave it out"},
    {"use_flash_attn", kFused},
    {"save", "checkpoints are in the run's folder (dsrun --run_dir DIR train ...); leave it out"},
    {"load", kResume},
    // torchtitan.
    {"job.config_file", "write its settings as flags and as a ds_config"},
    {"model.name", "write --model DIR"},
    {"parallelism.context_parallel_degree", kRing},
    {"activation_checkpoint.mode", kRecompute},
    {"metrics.log_freq", kMetrics},
};

// Describes the translation of a Trainer argument, as translate does.
std::string ExplainArgument(const ArgumentRow& row) {
  switch (row.effect) {
    case ArgumentEffect::kNone:
      return "this argument of transformers' Trainer does not affect the trained model; leave it "
             "out";
    case ArgumentEffect::kNear:
    case ArgumentEffect::kChanges:
      return std::string(row.text);
    case ArgumentEffect::kMapped:
      break;
  }
  return "give Trainer's arguments as JSON to --from_hf_trainer, which supports this one";
}

std::string_view ChooseMeaning(const Meaning& row, const std::string& value) {
  const auto share = ParseNumber<double>(value);
  return row.instead == kWarmup && share && *share >= 1.0 ? kIntegerWarmup : row.instead;
}

}  // namespace

std::string ExplainForeignTrainFlag(const std::string& name, const std::string& value) {
  const auto* const found = std::find_if(std::begin(kMeanings), std::end(kMeanings),
                                         [&](const Meaning& row) { return row.name == name; });
  if (found != std::end(kMeanings)) {
    return FillMeaning(ChooseMeaning(*found, value), name, value.empty() ? "N" : value);
  }
  const ArgumentRow* const row = FindArgument(name);
  return row == nullptr ? "" : ExplainArgument(*row);
}

void TakeForeignTrainFlags(FlagParser* parser) {
  parser->TakeAliases(kAliases);
  parser->ExplainUnknown(ExplainForeignTrainFlag);
}

}  // namespace ds::cli
