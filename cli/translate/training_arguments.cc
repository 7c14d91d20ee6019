#include "cli/translate/sources.h"

#include <algorithm>
#include <string>

#include "cli/translate/argument_table.h"
#include "cli/translate/given_arguments.h"
#include "cli/translate/trainer_saving.h"
#include "cli/translate/trainer_schedule.h"
#include "cli/translate/trl_arguments.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// Translates the groups of arguments one by one.
class ArgumentTranslator {
 public:
  ArgumentTranslator(const Json& given, const TrainerContext& context)
      : given_(given), context_(context), arguments_(given, &out_) {}

  Translation Translate() {
    TranslateInputs();
    TranslateSharding();
    TranslateLength();
    TranslateBatch();
    TranslateOptimizer();
    TranslatePrecision();
    TranslateMemory();
    TranslateOrder();
    CarryText("output_dir", "save_hf");
    TranslateSaving(steps_, &arguments_, &out_);
    RefuseOtherTrainers();
    for (const auto& [name, value] : given_.items()) RemarkOnOthers(name, value);
    return std::move(out_);
  }

 private:
  // Carries the argument over to the flag of the same name, with any value.
  void Carry(const char* name) {
    if (const auto number = arguments_.Number(name)) {
      out_.SetFlag(name, arguments_.Get(name), name, arguments_.Get(name));
    }
  }

  // Carries a text argument over to a flag, if it is given.
  void CarryText(const char* name, const char* flag) {
    if (const std::string text = arguments_.Text(name); !text.empty()) {
      out_.SetFlag(name, text, flag, text);
    }
  }

  void TranslateInputs() {
    CarryText("model_name_or_path", "model");
    CarryText("tokenizer_name", "tokenizer");
    CarryText("train_file", "data");
    CarryText("validation_file", "eval_data");
    TranslateSamples(&arguments_, &out_);
  }

  void TranslateSharding() {
    if (arguments_.Has("deepspeed")) {
      const Json config = arguments_.Get("deepspeed");
      if (!config.is_object() && !config.is_string()) {
        return arguments_.Miss("deepspeed", "it must be a ds_config or the path of one");
      }
      out_.ds_config = config.is_object() ? config : context_.deepspeed;
      if (!out_.ds_config.is_object()) out_.ds_config = Json::object();
      out_.has_deepspeed = true;
      out_.Add(Mapping::kExact, "deepspeed", config.is_string() ? config : Json("{...}"),
               "the ds_config");
    }
    if (arguments_.Has("fsdp")) {
      if (arguments_.Has("deepspeed")) {
        arguments_.Miss("fsdp", "Trainer takes fsdp or deepspeed, not both");
      } else {
        TranslateFsdp(arguments_.Get("fsdp"));
      }
    }
    const Json parallel = arguments_.Get("parallelism_config");
    if (!parallel.is_object()) return;
    for (const auto& [name, value] : parallel.items()) TranslateDegree(name, value);
  }

  void TranslateDegree(const std::string& name, const Json& value) {
    const std::string full = "parallelism_config." + name;
    if (!value.is_number_integer() || value == 1 || name.starts_with("dp_")) return;
    const bool splits_samples = name != "tp_size" && out_.flags.contains("sp");
    if (!splits_samples && (name == "tp_size" || name == "sp_size")) {
      const std::string flag = name.substr(0, 2);
      return out_.SetFlag(full, value, flag, value);
    }
    if (!splits_samples && name == "cp_size") {
      out_.flags["sp_kind"] = "ring";
      return out_.SetFlag(full, value, "sp", value);
    }
    out_.Add(Mapping::kMissing, full, value, "dsrun splits samples once, by --sp");
  }

  // Translates "full_shard auto_wrap offload" as a text or a list, or true for FSDP's second
  // version.
  void TranslateFsdp(const Json& value) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
    if (has("hybrid")) {
      return out_.Add(Mapping::kMissing, "fsdp", value,
                      "see zero_optimization.mics_shard_size and zero_hpz_partition_size");
    }
    const Json config = arguments_.Get("fsdp_config");
    const bool reshards =
        !config.is_object() || config.value("reshard_after_forward", Json(true)) != false;
    const int stage = has("no_shard")            ? 0
                      : has("shard_grad_op")     ? 2
                      : has("true") && !reshards ? 2
                                                 : 3;
    out_.SetKey("fsdp", value, "/zero_optimization/stage", stage);
    if (!has("offload")) return;
    out_.SetKey("fsdp", value, "/zero_optimization/offload_param/device", "cpu");
    out_.SetKey("fsdp", value, "/zero_optimization/offload_optimizer/device", "cpu");
  }

  // Trainer ends an epoch with a step of the remaining rows.
  void SetLength(const char* name, const Json& value, const char* flag, std::int64_t length) {
    out_.flags[flag] = length;
    const bool counts_epochs = std::string_view(flag) == "epochs";
    out_.Add(Mapping::kNearly, name, value,
             std::string("--") + flag +
                 "; when rows do not fill the last step of an epoch, Trainer runs it with fewer "
                 "rows, and dsrun fills it from the next epoch" +
                 (counts_epochs ? ": it has fewer steps then, and other rates" : ""));
  }

  void TranslateLength() {
    const std::optional<std::int64_t> most = arguments_.Integer("max_steps");
    const Json epochs = arguments_.Get("num_train_epochs");
    steps_ = context_.steps;
    if (most.value_or(0) > 0) {
      if (!steps_) steps_ = most;
      return SetLength("max_steps", *most, "steps", *steps_);
    }
    if (steps_) return SetLength("num_train_epochs", epochs, "steps", *steps_);
    if (const auto integer = arguments_.Integer("num_train_epochs")) {
      SetLength("num_train_epochs", epochs, "epochs", *integer);
    }
  }

  void TranslateBatch() {
    for (const char* name : {"per_device_train_batch_size", "gradient_accumulation_steps"})
      Carry(name);
    TranslateAccelerator();
  }

  void TranslateAccelerator() {
    constexpr std::string_view kKnown[] = {"split_batches",       "dispatch_batches",
                                           "even_batches",        "use_seedable_sampler",
                                           "non_blocking",        "gradient_accumulation_kwargs",
                                           "use_configured_state"};
    const Json accelerator = arguments_.Get("accelerator_config");
    if (accelerator.is_null()) return;
    if (!accelerator.is_object()) {
      return arguments_.Miss("accelerator_config", "it must be an object: write it into the file");
    }
    for (const auto& [name, value] : accelerator.items()) {
      if (std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown)) continue;
      out_.Add(Mapping::kMissing, "accelerator_config." + name, value,
               "Trainer has no such argument");
    }
    if (accelerator.value("split_batches", Json()) == true) {
      out_.Add(Mapping::kMissing, "accelerator_config.split_batches", true,
               "give each rank's share as per_device_train_batch_size");
    }
    if (const Json kwargs = accelerator.value("gradient_accumulation_kwargs", Json());
        !IsUnset(kwargs)) {
      out_.Add(Mapping::kMissing, "accelerator_config.gradient_accumulation_kwargs", kwargs,
               "dsrun accumulates to the end of every step");
    }
  }

  // Returns the type of Trainer's optimizer; "" if dsrun does not have it.
  static std::string OptimizerType(const std::string& optim) {
    constexpr const char* kAdamW[] = {"adamw_torch", "adamw_torch_fused", "adamw_hf",
                                      "adamw_apex_fused", "adamw_torch_npu_fused"};
    if (std::find(std::begin(kAdamW), std::end(kAdamW), optim) != std::end(kAdamW)) return "AdamW";
    return optim == "sgd" ? "SGD" : "";
  }

  void TranslateOptimizer() {
    const std::string optim = arguments_.Text("optim");
    const bool is_of_deepspeed = out_.ds_config.contains("optimizer");
    if (!is_of_deepspeed) {
      const std::string type = OptimizerType(optim);
      if (type.empty()) {
        arguments_.Miss("optim", "write one of dsrun's optimizers into the ds_config");
      } else {
        out_.SetKey("optim", optim, "/optimizer/type", type);
      }
    }
    const Json optimizer = out_.ds_config.value("optimizer", Json());
    const bool is_adam = !optimizer.is_object() || optimizer.value("type", Json()) != "SGD";
    for (const char* name : {"learning_rate", "weight_decay", "max_grad_norm"}) Carry(name);
    for (const char* name : {"adam_beta1", "adam_beta2", "adam_epsilon"}) {
      if (is_adam) Carry(name);
    }
    // Trainer groups the parameters of its own optimizer for any decay, because a flag may change
    // the decay. An optimizer of the ds_config gets them as a list.
    if (!is_of_deepspeed) out_.flags["no_decay_on_norms_and_biases"] = true;
    if (!out_.ds_config.contains("scheduler")) return TranslateSchedule(&arguments_, &out_);
    TranslateWarmup(&arguments_, &out_);
  }

  // TRL uses bf16 by default. With DeepSpeed, evaluations have the precision of training.
  bool IsPrecision(const std::string& name) {
    const bool is_open = name == "bf16" && arguments_.of_sft() && arguments_.Get(name).is_null();
    if (out_.has_deepspeed && arguments_.Flag(name + "_full_eval")) return true;
    return is_open ? !arguments_.Flag("fp16") : arguments_.Flag(name);
  }

  // Trainer computes in autocast; DeepSpeed and FSDP store weights of that type, with fp32 masters.
  void TranslatePrecision() {
    const bool has_masters = arguments_.Has("deepspeed") || arguments_.Has("fsdp");
    if (IsPrecision("bf16") && IsPrecision("fp16")) {
      return arguments_.Miss("fp16", "Trainer takes bf16 or fp16, not both");
    }
    if (!has_masters) out_.expressed.insert(out_.expressed.end(), {"bf16", "fp16"});
    for (const auto& [name, dtype] :
         {std::pair("bf16", "bfloat16"), std::pair("fp16", "float16")}) {
      if (!IsPrecision(name)) continue;
      if (has_masters) {
        out_.SetFlag(name, true, name, true);
      } else {
        out_.ds_config["torch_autocast"]["enabled"] = true;
        out_.SetKey(name, true, "/torch_autocast/dtype", dtype);
      }
    }
  }

  void TranslateMemory() {
    for (const char* name : {"gradient_checkpointing", "activation_checkpointing"}) {
      if (!arguments_.Flag(name)) continue;
      out_.flags["recompute"] = "full";
      out_.Add(Mapping::kExact, name, true, "--recompute full");
    }
    for (const char* name : {"use_cpu", "no_cuda"}) {
      if (!arguments_.Flag(name)) continue;
      out_.launch = {"--device", "cpu"};
      out_.Add(Mapping::kExact, name, true, "--device cpu");
    }
  }

  void TranslateOrder() {
    if (arguments_.Has("neftune_noise_alpha")) Carry("neftune_noise_alpha");
    if (const auto seed = arguments_.Integer("seed")) out_.SetFlag("seed", *seed, "seed", *seed);
    if (!arguments_.Get("data_seed").is_null() &&
        arguments_.Get("data_seed") != arguments_.Get("seed")) {
      arguments_.Miss("data_seed", "dsrun has one seed, for weights and order");
    }
    const std::string order = arguments_.Text("train_sampling_strategy");
    if (order == "sequential" && arguments_.Flag("shuffle_dataset")) {
      arguments_.Miss("shuffle_dataset", "the order is a random one already; shuffle the file");
    } else if (order == "sequential") {
      out_.SetFlag("train_sampling_strategy", order, "no_shuffle", true);
    } else if (order != "random") {
      arguments_.Miss("train_sampling_strategy", "dsrun does not sort samples by length");
    }
  }

  // Rejects the arguments of other TRL trainers, because dsrun does not have their losses.
  void RefuseOtherTrainers() {
    std::string names;
    for (const auto& [name, value] : given_.items()) {
      if (IsOfOtherTrainer(name)) names += (names.empty() ? "" : ", ") + name;
    }
    if (names.empty()) return;
    out_.Add(Mapping::kMissing, names, "",
             "arguments of TRL's trainers for DPO, KTO, GRPO, RLOO, rewards or distillation; "
             "dsrun trains on the next token");
  }

  // Adds remarks for arguments that no group has handled.
  void RemarkOnOthers(const std::string& name, const Json& value) {
    const ArgumentRow* const row = FindArgument(name);
    if (IsOfOtherTrainer(name)) return;
    if (row == nullptr) {
      return out_.Add(Mapping::kMissing, name, value,
                      "dsrun has no such argument" + DidYouMean(name, ArgumentNames()));
    }
    const Json by_default = DefaultOf(*row, arguments_.of_sft());
    const bool is_default = value == by_default || (IsUnset(value) && IsUnset(by_default));
    if (is_default || row->effect == ArgumentEffect::kMapped) return;
    switch (row->effect) {
      case ArgumentEffect::kNone:
        return out_.Add(Mapping::kLeftOut, name, "", "");
      case ArgumentEffect::kNear:
        return out_.Add(Mapping::kNearly, name, value, std::string(row->text));
      case ArgumentEffect::kChanges:
      case ArgumentEffect::kMapped:
        return out_.Add(Mapping::kMissing, name, value, std::string(row->text));
    }
  }

  const Json& given_;
  const TrainerContext& context_;
  Translation out_;
  GivenArguments arguments_;
  std::optional<std::int64_t> steps_;  // of the full training
};

}  // namespace

Translation TranslateTrainingArguments(const Json& arguments, const TrainerContext& context) {
  return ArgumentTranslator(arguments, context).Translate();
}

std::string DeepspeedPath(const Json& arguments) {
  const auto found = arguments.find("deepspeed");
  if (found == arguments.end() || !found->is_string()) return "";
  const auto& text = found->get_ref<const std::string&>();
  return text.starts_with("{") ? "" : text;  // JSON, as transformers takes it
}

}  // namespace ds::cli
