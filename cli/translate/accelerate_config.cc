#include "cli/translate/sources.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/translate/given_arguments.h"
#include "runtime/base/parse_number.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// Keys that never affect training results.
constexpr std::string_view kLeftOut[] = {
    "compute_environment", "debug", "machine_rank", "main_training_function", "rdzv_backend",
    "same_network", "tpu_use_sudo", "tpu_use_cluster", "dynamo_config", "dynamo_backend",
    "downcast_bf16", "tpu_env", "tpu_vm", "commands", "command_file", "tpu_name", "tpu_zone",
    // deepspeed_config
    "zero3_init_flag", "zero3_save_16bit_model", "deepspeed_multinode_launcher",
    "deepspeed_moe_layer_cls_names",
    // fsdp_config
    "fsdp_auto_wrap_policy", "fsdp_backward_prefetch", "fsdp_cpu_ram_efficient_loading",
    "fsdp_forward_prefetch", "fsdp_min_num_params", "fsdp_state_dict_type",
    "fsdp_sync_module_states", "fsdp_transformer_layer_cls_to_wrap", "fsdp_use_orig_params",
    "fsdp_version",
    // parallelism_config
    "parallelism_config_dp_replicate_size", "parallelism_config_dp_shard_size",
    "parallelism_config_cp_comm_strategy", "parallelism_config_cp_seq_length_is_variable",
    "parallelism_config_cp_attn_implementation", "parallelism_config_sp_backend",
    "parallelism_config_sp_attn_implementation", "parallelism_config_sp_seq_length",
    "parallelism_config_sp_seq_length_is_variable"};

// Context parallelism passes keys and values around a ring of ranks. With the backend "deepspeed",
// which Accelerate used before its sp_size, it is Ulysses.
constexpr const char* kRingSize = "parallelism_config_cp_size";
constexpr const char* kRingBackend = "parallelism_config_cp_backend";

// A key of DeepSpeed's own config that Accelerate files also have.
constexpr const char* kSequenceDtype = "seq_parallel_communication_data_type";

// Keys that TranslateAccelerateConfig reads in one of its groups.
constexpr std::string_view kRead[] = {"distributed_type",
                                      "num_processes",
                                      "num_machines",
                                      "gpu_ids",
                                      "main_process_ip",
                                      "main_process_port",
                                      "use_cpu",
                                      "enable_cpu_affinity",
                                      "mixed_precision",
                                      "deepspeed_config",
                                      "fsdp_config",
                                      "parallelism_config",
                                      kRingSize,
                                      kRingBackend,
                                      kSequenceDtype,
                                      "mpirun_config",
                                      "deepspeed_config_file",
                                      "zero_stage",
                                      "offload_optimizer_device",
                                      "offload_param_device",
                                      "offload_optimizer_nvme_path",
                                      "offload_param_nvme_path",
                                      "gradient_accumulation_steps",
                                      "gradient_clipping",
                                      "deepspeed_hostfile",
                                      "deepspeed_inclusion_filter",
                                      "deepspeed_exclusion_filter",
                                      "fsdp_sharding_strategy",
                                      "fsdp_reshard_after_forward",
                                      "fsdp_offload_params",
                                      "fsdp_activation_checkpointing",
                                      "fsdp_activation_checkpointing_offload",
                                      "parallelism_config_tp_size",
                                      "parallelism_config_sp_size",
                                      "mpirun_hostfile",
                                      "mpirun_ccl"};

bool Holds(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the section from which Accelerate reads a key; "" for the top level.
std::string_view SectionOf(std::string_view name) {
  constexpr std::string_view kOfDeepspeed[] = {"zero_stage",
                                               "offload_optimizer_device",
                                               "offload_param_device",
                                               "offload_optimizer_nvme_path",
                                               "offload_param_nvme_path",
                                               "gradient_accumulation_steps",
                                               "gradient_clipping",
                                               "deepspeed_config_file",
                                               "deepspeed_hostfile",
                                               "deepspeed_inclusion_filter",
                                               "deepspeed_exclusion_filter",
                                               kSequenceDtype};
  if (Holds(kOfDeepspeed, name)) return "deepspeed_config";
  for (const std::string_view section : {"fsdp_config", "parallelism_config", "mpirun_config"}) {
    if (name == section) return "";
    const std::string_view prefix = section.substr(0, section.find('_') + 1);
    if (name.starts_with(prefix)) return section;
  }
  return "";
}

bool IsTrue(const Json& value) { return value == true || value == "true" || value == "True"; }

std::string WordOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

class ConfigTranslator {
 public:
  ConfigTranslator(const Json& config, const Json& deepspeed)
      : config_(config), deepspeed_(deepspeed) {}

  Translation Translate() {
    TranslateHosts();
    TranslateKind();
    TranslateDeepspeed();
    TranslateFsdp();
    TranslateDegrees();
    TranslatePrecision();
    RemarkOnOthers(config_);
    return std::move(out_);
  }

 private:
  // Returns null if the key is missing or empty.
  Json Get(const char* name) const { return config_.value(name, Json()); }
  Json Get(const char* section, const char* name) const {
    const Json object = Get(section);
    return object.is_object() ? object.value(name, Json()) : Json();
  }

  void Launch(const std::string& name, const Json& value, std::vector<std::string> words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    out_.Add(Mapping::kExact, name, value, text);
    out_.launch.insert(out_.launch.end(), words.begin(), words.end());
  }

  void TranslateHosts() {
    const Json hostfile = Get("deepspeed_config", "deepspeed_hostfile");
    const Json mpi_hosts = Get("mpirun_config", "mpirun_hostfile");
    const bool has_hosts = !IsUnset(hostfile) || !IsUnset(mpi_hosts);
    if (has_hosts) {
      const Json& file = IsUnset(hostfile) ? mpi_hosts : hostfile;
      Launch("deepspeed_hostfile", file, {"--hostfile", WordOf(file)});
    }
    TranslateRanks(has_hosts);
    for (const auto& [name, flag] : {std::pair("deepspeed_inclusion_filter", "--include"),
                                     std::pair("deepspeed_exclusion_filter", "--exclude")}) {
      const Json filter = Get("deepspeed_config", name);
      if (!IsUnset(filter)) Launch(name, filter, {flag, WordOf(filter)});
    }
    if (const Json ip = Get("main_process_ip"); !IsUnset(ip)) {
      Launch("main_process_ip", ip, {"--master_addr", WordOf(ip)});
    }
    if (const Json port = Get("main_process_port"); !IsUnset(port) && port != 0) {
      Launch("main_process_port", port, {"--master_port", WordOf(port)});
    }
    if (Get("use_cpu") == true) Launch("use_cpu", true, {"--device", "cpu"});
    if (Get("enable_cpu_affinity") == true) {
      Launch("enable_cpu_affinity", true, {"--bind_cores_to_rank"});
    }
  }

  // Accelerate shows its ranks all these GPUs, and they take the first num_processes.
  static std::string FirstIds(const std::string& ids, const Json& ranks) {
    if (!ranks.is_number_integer() || ranks < 1) return ids;
    std::size_t end = 0;
    for (auto rank = ranks.get<std::int64_t>(); rank > 0 && end < ids.size(); --rank) {
      end = std::min(ids.find(',', end), ids.size() - 1) + 1;
    }
    return ids.substr(0, ids[end - 1] == ',' ? end - 1 : end);
  }

  // YAML reads numbers in quotes as texts.
  static Json ReadNumber(const Json& value) {
    if (!value.is_string()) return value;
    const auto& text = value.get_ref<const std::string&>();
    if (const auto integer = ParseNumber<std::int64_t>(text)) return *integer;
    const auto number = ParseNumber<double>(text);
    return number ? Json(*number) : value;
  }

  // num_processes counts the ranks of all hosts, --num_gpus the ranks of one host.
  void TranslateRanks(bool has_hosts) {
    const Json ids = Get("gpu_ids");
    const Json ranks = ReadNumber(Get("num_processes"));
    const std::int64_t hosts = config_.value("num_machines", Json(1)).is_number_integer()
                                   ? config_.value("num_machines", 1)
                                   : 1;
    if (hosts > 1) {
      if (!has_hosts) out_.launch.insert(out_.launch.end(), {"--hostfile", "HOSTFILE"});
      Launch("num_machines", hosts, {"--num_nodes", std::to_string(hosts)});
    } else if (!IsUnset(ids) && ids != "all") {
      return Launch("gpu_ids", ids, {"--include", "localhost:" + FirstIds(WordOf(ids), ranks)});
    }
    if (ranks.is_null()) return;
    if (IsKind("NO") && hosts == 1) return Launch("num_processes", ranks, {"--num_gpus", "1"});
    const std::int64_t all = ranks.is_number_integer() ? ranks.get<std::int64_t>() : 0;
    if (all < 1 || hosts < 1 || all % hosts != 0) {
      return out_.Add(
          Mapping::kMissing, "num_processes", ranks,
          "hosts have like numbers of ranks; else write slots=N for each in a hostfile");
    }
    Launch("num_processes", ranks, {"--num_gpus", std::to_string(all / hosts)});
  }

  void TranslateKind() {
    const Json kind = Get("distributed_type");
    constexpr std::string_view kKnown[] = {"NO", "MULTI_GPU", "MULTI_CPU", "DEEPSPEED", "FSDP"};
    if (!kind.is_string() || !Holds(kKnown, kind.get<std::string>())) {
      return out_.Add(Mapping::kMissing, "distributed_type", kind,
                      "dsrun has ZeRO on CPU and CUDA ranks");
    }
    out_.Add(Mapping::kExact, "distributed_type", kind, "ranks of dsrun");
    const bool says_cpu =
        std::find(out_.launch.begin(), out_.launch.end(), "cpu") != out_.launch.end();
    if (kind == "MULTI_CPU" && !says_cpu) {
      out_.launch.insert(out_.launch.end(), {"--device", "cpu"});
    }
  }

  bool IsKind(const char* kind) const { return Get("distributed_type") == kind; }

  // Accelerate rejects these keys if a ds_config file sets the same values.
  void RejectKeysGivenWithFile() {
    const Json section = Get("deepspeed_config");
    for (const auto& [name, value] : section.items()) {
      const bool counts = name.starts_with("deepspeed_") || Holds(kLeftOut, name);  // all the same
      if (counts || SectionOf(name).empty() || value.is_null() || value == "none") continue;
      out_.Add(Mapping::kMissing, name, value, "deepspeed_config_file is all: write it there");
    }
  }
  void TranslateDeepspeed() {
    if (!IsKind("DEEPSPEED")) return;
    if (const std::string path = AccelerateDeepspeedPath(config_); !path.empty()) {
      out_.ds_config = deepspeed_.is_object() ? deepspeed_ : Json::object();
      RejectKeysGivenWithFile();
      return out_.Add(Mapping::kExact, "deepspeed_config_file", path, "the ds_config");
    }
    constexpr const char* kSection = "deepspeed_config";
    const Json stage = ReadNumber(Get(kSection, "zero_stage"));
    out_.SetKey("zero_stage", stage, "/zero_optimization/stage", stage.is_null() ? Json(2) : stage);
    for (const std::string part : {"offload_optimizer", "offload_param"}) TranslateOffload(part);
    const Json accumulation = ReadNumber(Get(kSection, "gradient_accumulation_steps"));
    if (!accumulation.is_null()) {
      out_.SetKey("gradient_accumulation_steps", accumulation, "/gradient_accumulation_steps",
                  accumulation);
    }
    if (const Json dtype = Get(kSection, kSequenceDtype); !IsUnset(dtype)) {
      out_.SetKey(kSequenceDtype, dtype, std::string("/") + kSequenceDtype, dtype);
    }
    out_.ds_config["train_micro_batch_size_per_gpu"] = "auto";  // as the script says
    // Accelerate clips gradients only if the script does; DeepSpeed's own default is 1.0.
    const Json clipping = ReadNumber(Get(kSection, "gradient_clipping"));
    if (!clipping.is_null()) {
      out_.SetKey("gradient_clipping", clipping, "/gradient_clipping", clipping);
    }
  }

  void TranslateOffload(const std::string& part) {
    const Json device = Get("deepspeed_config", (part + "_device").c_str());
    if (IsUnset(device) || device == "none") return;
    out_.SetKey(part + "_device", device, "/zero_optimization/" + part + "/device", device);
    if (device != "nvme") return;
    const Json path = Get("deepspeed_config", (part + "_nvme_path").c_str());
    out_.SetKey(part + "_nvme_path", path, "/zero_optimization/" + part + "/nvme_path", path);
  }

  // Returns -1 for a strategy without a ZeRO stage.
  int FsdpStage() const {
    const Json strategy = Get("fsdp_config", "fsdp_sharding_strategy");
    if (strategy == "NO_SHARD" || strategy == 3 || strategy == "3") return 0;
    if (strategy == "SHARD_GRAD_OP" || strategy == 2 || strategy == "2") return 2;
    const Json reshards = Get("fsdp_config", "fsdp_reshard_after_forward");
    if (reshards == "SHARD_GRAD_OP" || (strategy.is_null() && reshards == false)) return 2;
    const bool is_full =
        strategy.is_null() || strategy == "FULL_SHARD" || strategy == 1 || strategy == "1";
    return is_full ? 3 : -1;
  }

  void TranslateFsdp() {
    if (!IsKind("FSDP")) return;
    const char* const name = IsUnset(Get("fsdp_config", "fsdp_sharding_strategy"))
                                 ? "fsdp_reshard_after_forward"
                                 : "fsdp_sharding_strategy";
    const Json value = Get("fsdp_config", name);
    if (FsdpStage() < 0) {
      out_.Add(Mapping::kMissing, name, value,
               "see zero_optimization.mics_shard_size and zero_hpz_partition_size");
    } else {
      out_.SetKey(name, value, "/zero_optimization/stage", FsdpStage());
    }
    if (IsTrue(Get("fsdp_config", "fsdp_offload_params"))) {
      out_.SetKey("fsdp_offload_params", true, "/zero_optimization/offload_param/device", "cpu");
      out_.SetKey("fsdp_offload_params", true, "/zero_optimization/offload_optimizer/device",
                  "cpu");
    }
    if (IsTrue(Get("fsdp_config", "fsdp_activation_checkpointing"))) {
      out_.SetFlag("fsdp_activation_checkpointing", true, "recompute", "full");
    }
    if (IsTrue(Get("fsdp_config", "fsdp_activation_checkpointing_offload"))) {
      out_.SetKey("fsdp_activation_checkpointing_offload", true,
                  "/activation_checkpointing/cpu_checkpointing", true);
    }
  }

  void TranslateDegrees() {
    for (const auto& [name, flag] : {std::pair("parallelism_config_tp_size", "tp"),
                                     std::pair("parallelism_config_sp_size", "sp")}) {
      const Json size = Get("parallelism_config", name);
      if (size.is_number_integer() && size > 1) out_.SetFlag(name, size, flag, size);
    }
    const Json ring = Get("parallelism_config", kRingSize);
    if (!ring.is_number_integer() || ring <= 1) return;
    if (out_.flags.contains("sp")) {
      return out_.Add(Mapping::kMissing, kRingSize, ring, "dsrun splits samples once, by --sp");
    }
    const Json backend = Get("parallelism_config", kRingBackend);
    if (!IsUnset(backend) && backend != "torch" && backend != "deepspeed") {
      return out_.Add(Mapping::kMissing, kRingBackend, backend,
                      "Accelerate has torch and deepspeed");
    }
    if (backend != "deepspeed") out_.flags["sp_kind"] = "ring";
    out_.SetFlag(kRingSize, ring, "sp", ring);
  }

  void TranslatePrecision() {
    const Json precision = Get("mixed_precision");
    if (IsUnset(precision) || precision == "no") return;
    if (precision != "bf16" && precision != "fp16") {
      return out_.Add(Mapping::kMissing, "mixed_precision", precision, "dsrun has bf16 and fp16");
    }
    const auto name = precision.get<std::string>();
    if (IsKind("DEEPSPEED") || IsKind("FSDP")) {
      if (out_.ds_config.contains(name))
        return out_.SetFlag("mixed_precision", precision, name, true);
      return out_.SetKey("mixed_precision", precision, "/" + name + "/enabled", true);
    }
    out_.ds_config["torch_autocast"]["enabled"] = true;
    out_.SetKey("mixed_precision", precision, "/torch_autocast/dtype",
                name == "bf16" ? "bfloat16" : "float16");
  }

  void RemarkOnOthers(const Json& section) {
    for (const auto& [name, value] : section.items()) {
      if (value.is_object() && (name == "deepspeed_config" || name == "fsdp_config" ||
                                name == "parallelism_config" || name == "mpirun_config")) {
        RemarkOnOthers(value);
      } else if (&section == &config_ && !IsUnset(value) && Holds(kRead, name) &&
                 !SectionOf(name).empty()) {
        out_.Add(Mapping::kMissing, name, value,
                 "Accelerate reads it in the section " + std::string(SectionOf(name)) + " alone");
      } else if (Holds(kLeftOut, name)) {
        if (!IsUnset(value)) out_.Add(Mapping::kLeftOut, name, "", "");
      } else if (!Holds(kRead, name) && !IsUnset(value)) {
        RefuseOther(name, value);
      }
    }
  }

  void RefuseOther(const std::string& name, const Json& value) {
    if (name == "fp8_config" && Get("mixed_precision") != "fp8") return;
    if (name == "fp8_config" || name == "megatron_lm_config") {
      return out_.Add(Mapping::kMissing, name, "{...}", "dsrun does not have it");
    }
    std::vector<std::string> known(std::begin(kRead), std::end(kRead));
    known.insert(known.end(), std::begin(kLeftOut), std::end(kLeftOut));
    out_.Add(Mapping::kMissing, name, value, "dsrun has no such key" + DidYouMean(name, known));
  }

  const Json& config_;
  const Json& deepspeed_;
  Translation out_;
};

}  // namespace

bool IsAccelerateConfig(const Json& config) {
  return config.is_object() &&
         (config.contains("distributed_type") || config.contains("compute_environment"));
}

Translation TranslateAccelerateConfig(const Json& config, const Json& deepspeed) {
  return ConfigTranslator(config, deepspeed).Translate();
}

std::string AccelerateDeepspeedPath(const Json& config) {
  const auto section = config.find("deepspeed_config");
  if (section == config.end() || !section->is_object()) return "";
  const Json path = section->value("deepspeed_config_file", Json());
  return path.is_string() && path != "none" ? path.get<std::string>() : "";
}

}  // namespace ds::cli
