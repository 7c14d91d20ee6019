#include "runtime/plan/estimate/predict_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/byte_size.h"
#include "runtime/base/counted.h"
#include "runtime/base/files.h"
#include "runtime/base/json_fault.h"
#include "runtime/base/parse_number.h"
#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/memory/expert_bytes.h"
#include "runtime/plan/memory/known_memory.h"
#include "runtime/plan/model/families.h"

namespace ds::plan {
namespace {

namespace fs = std::filesystem;
using config::RecomputeChoice;

// Measured: memory of dsrank besides tensors, on a CPU and with the CUDA libraries.
constexpr std::int64_t kCpuProcessBytes = std::int64_t{110} << 20;
constexpr std::int64_t kCudaProcessBytes = std::int64_t{480} << 20;

std::string Size(std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); }

}  // namespace

StatusOr<models::DecoderSpec> ReadJobModel(const fs::path& model) {
  std::error_code ignored;
  const fs::path path = fs::is_directory(model, ignored) ? model / "config.json" : model;
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  const auto config = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded()) {
    return InvalidArgumentError(path.string() + ": not valid JSON: " + DescribeJsonFault(text));
  }
  DS_ASSIGN_OR_RETURN(
      models::DecoderSpec spec,
      models::ReadDecoderSpec(config, path.string(), models::UnknownModelKeys::kIgnore));
  const Status known = models::CheckMemoryIsKnown(spec);
  if (!known.ok()) return known.WithContext(path.string());
  return spec;
}

StatusOr<std::int64_t> ParseMemory(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  const int shift = unit.empty() ? 0 : unit == "M" ? 20 : unit == "G" ? 30 : unit == "T" ? 40 : -1;
  const auto count = ParseNumber<std::int64_t>(std::string_view(text).substr(0, digits));
  if (shift < 0 || !count || *count < 1 || *count > (std::int64_t{1} << 50 >> shift)) {
    return InvalidArgumentError("--memory " + text +
                                ": give bytes, for example 80G, 512M or 85899345920");
  }
  return *count << shift;
}

MemoryPrediction PredictMemory(const config::DsConfig& config, const engine::JobShape& job) {
  const bool on_gpu = job.setting.on_gpu;
  return {.step = engine::PlanJobMemory(config, job),
          .process_bytes = on_gpu ? kCudaProcessBytes : kCpuProcessBytes,
          .on_gpu = on_gpu};
}

std::int64_t LargestMicroBatch(config::DsConfig config, const engine::JobShape& job,
                               std::int64_t bytes) {
  const auto fits = [&](std::int64_t samples) {
    config.batch.train_micro_batch_size_per_gpu = samples;
    return engine::CheckMemoryIsKnown(config, job).ok() &&
           PredictMemory(config, job).bytes() <= bytes;
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 24;
  if (!fits(1)) return 0;
  std::int64_t fitting = 1, failing = 2;
  while (failing < kMost && fits(failing)) fitting = std::exchange(failing, 2 * failing);
  while (failing - fitting > 1) {
    const std::int64_t middle = fitting + (failing - fitting) / 2;
    (fits(middle) ? fitting : failing) = middle;
  }
  return fitting;
}

std::vector<Change> ListChanges(const config::DsConfig& config, const engine::JobShape& job) {
  const std::int64_t now = PredictMemory(config, job).bytes();
  std::vector<Change> changes;
  const auto add = [&](const std::string& what, const config::DsConfig& other,
                       const engine::JobShape& shape) {
    const std::int64_t bytes = PredictMemory(other, shape).bytes();
    if (bytes < now) changes.push_back({what, bytes});
  };
  config::DsConfig other = config;
  for (int stage = config.zero_optimization.stage + 1; stage <= 3; ++stage) {
    other.zero_optimization.stage = stage;
    add("zero_optimization.stage " + std::to_string(stage), other, job);
  }
  engine::JobShape recomputed = job;
  recomputed.recompute = {.kind = RecomputeChoice::Kind::kAttention};
  add("--recompute attention", config, recomputed);
  recomputed.recompute = {.kind = RecomputeChoice::Kind::kBlocks};
  add("--recompute full", config, recomputed);
  other.zero_optimization.stage = 3;
  add("zero_optimization.stage 3 and --recompute full", other, recomputed);
  other = config;
  other.batch.train_micro_batch_size_per_gpu = 1;
  add("a micro-batch of 1", other, job);
  other.zero_optimization.stage = 3;
  add("stage 3, --recompute full, a micro-batch of 1", other, recomputed);
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.bytes < b.bytes; });
  return changes;
}

std::string ListHostParts(const MemoryPrediction& rank) {
  const zero::HeldMemory here = rank.on_gpu ? zero::HeldMemory() : rank.step.peak;
  const zero::OffloadedMemory& offload = rank.step.offload;
  const std::pair<std::int64_t, const char*> parts[] = {{here.parameters, "parameters"},
                                                        {here.gradients, "gradients"},
                                                        {here.optimizer_state, "optimizer state"},
                                                        {here.master_weights, "master weights"},
                                                        {here.comm_buffers, "buffers of ZeRO"},
                                                        {here.activations, "activations"},
                                                        {here.other, "buffers of the optimizer"},
                                                        {offload.host, "offloaded state"},
                                                        {offload.file_buffers, "buffers for files"},
                                                        {rank.process_bytes, "the program"}};
  std::string text;
  for (const auto& [bytes, what] : parts) {
    if (bytes > 0) text += (text.empty() ? "" : ", ") + Size(bytes) + " of " + what;
  }
  if (!rank.on_gpu) text += ", in " + rank.step.when;
  return offload.files > 0 ? text + "; and " + Size(offload.files) + " in files" : text;
}

std::string AdviseOnMemory(const config::DsConfig& config, const engine::JobShape& job,
                           std::int64_t bytes) {
  if (job.setting.on_gpu) return "use more hosts, or offload to NVMe instead of the host";
  std::string advice;
  const auto add = [&](const std::string& setting) { advice += "\n  " + setting; };
  if (const std::int64_t samples = LargestMicroBatch(config, job, bytes); samples > 0) {
    add("a micro-batch of " + std::to_string(samples));
  }
  for (const Change& change : ListChanges(config, job)) {
    if (change.bytes <= bytes && change.what != "a micro-batch of 1") {
      add(change.what + " (" + Size(change.bytes) + " a rank)");
    }
  }
  if (!advice.empty()) return "settings that fit, each by itself:" + advice;
  return "no stage, --recompute or micro-batch makes it fit: use more hosts, a smaller model or "
         "offload to NVMe";
}

std::optional<std::string> DescribeRecompute(const config::DsConfig& config,
                                             const RecomputeChoice& asked,
                                             const engine::JobShape* job) {
  if (!config.activation_checkpointing.asked_for) return std::nullopt;
  if (asked.kind == RecomputeChoice::Kind::kNone) {
    return "--recompute none rules: no layer is recomputed, in spite of activation_checkpointing "
           "in the ds_config";
  }
  if (asked.kind != RecomputeChoice::Kind::kByConfig) return std::nullopt;
  std::string text =
      "activation_checkpointing in the ds_config: every layer is recomputed in the backward pass "
      "(--recompute full; none switches it off)";
  if (job == nullptr) return text;
  engine::JobShape shape = *job;
  shape.recompute = {.kind = RecomputeChoice::Kind::kNone};
  const std::int64_t kept = engine::PlanJobMemory(config, shape).peak_activations;
  shape.recompute = {.kind = RecomputeChoice::Kind::kBlocks};
  const std::int64_t recomputed = engine::PlanJobMemory(config, shape).peak_activations;
  return text + "; a rank has " + Size(recomputed) + " of activations at the most, and " +
         Size(kept) + " without";
}

namespace {

std::string ShowSize(std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); }

const char* TypeName(config::DataType type) {
  switch (type) {
    case config::DataType::kBf16:
      return "bf16";
    case config::DataType::kFp16:
      return "fp16";
    case config::DataType::kFp32:
      break;
  }
  return "fp32";
}

// No token is dropped, so only the router bounds the load of a rank's experts.
std::string DescribeLoad(const Prediction& prediction) {
  if (!prediction.worst_load) return "";
  const double most = prediction.most_load(), load = std::min(prediction.job.expert_load, most);
  std::string text = fmt::format("experts: planned for {:.3g} x an even load of a rank's; ", load);
  if (load == most) return text + "this is the maximum\n";
  return text + fmt::format("with {:.3g} x, the maximum, {} together (--expert_load)\n", most,
                            ShowSize(prediction.worst_load->bytes()));
}

// A micro-batch formed by tokens is padded to its longest sample, so its number of rows depends on
// the data.
std::string DescribePadding(const engine::JobShape& job) {
  if (!job.efficiency.dynamic_batching) return "";
  return "dynamic batching: planned for samples of " + std::to_string(job.seq_len) +
         " tokens; the padding of shorter ones is not included\n";
}

std::string DescribeCapacity(const Prediction& prediction) {
  if (!prediction.capacity) {
    return "give --memory BYTES, the limit of a rank, to see settings that fit\n";
  }
  std::string text = fmt::format("{} in {}", prediction.fits() ? "fits" : "does NOT fit",
                                 ShowSize(*prediction.capacity));
  if (prediction.largest_micro_batch == 0) return text + ", with any micro-batch\n";
  return text +
         fmt::format("; the largest micro-batch that does: {}\n", prediction.largest_micro_batch);
}

}  // namespace

Prediction MakePrediction(Prediction question) {
  question.rank = PredictMemory(question.config, question.job);
  question.changes = ListChanges(question.config, question.job);
  if (question.capacity) {
    question.largest_micro_batch =
        LargestMicroBatch(question.config, question.job, *question.capacity);
  }
  if (question.most_load() > 1.0) {
    engine::JobShape worst = question.job;
    worst.expert_load = question.most_load();
    if (engine::CheckMemoryIsKnown(question.config, worst).ok()) {
      question.worst_load = PredictMemory(question.config, worst);
    }
  }
  return question;
}

double Prediction::most_load() const {
  return models::MostExpertLoad(job.model, config.parallel.expert);
}

std::string DescribeMicroBatch(const config::BatchConfig& batch, const engine::JobShape& job) {
  const auto& by_tokens = job.efficiency.dynamic_batching;
  if (!by_tokens) {
    return fmt::format("{} x {} tokens", batch.train_micro_batch_size_per_gpu, job.seq_len);
  }
  return fmt::format("{} x up to {} tokens before padding", batch.train_micro_batch_size_per_gpu,
                     by_tokens->max_tokens);
}

std::string ToText(const Prediction& prediction) {
  const MemoryPrediction& rank = prediction.rank;
  const zero::HeldMemory& peak = rank.step.peak;
  const char* const tier = rank.on_gpu ? "on its GPU" : "on its host";
  std::string text = fmt::format(
      "{} on {}, {} a micro-batch, {}, ZeRO stage {}\n\npeak memory of each rank {}, in {}:\n",
      Counted(prediction.job.setting.ranks, "rank"), Counted(prediction.hosts, "host"),
      DescribeMicroBatch(prediction.config.batch, prediction.job),
      TypeName(prediction.config.training_dtype()), prediction.config.zero_optimization.stage, tier,
      rank.step.when);
  const auto row = [&](const char* name, std::int64_t bytes) {
    text += fmt::format("  {:<18}{:>11}\n", name, ShowSize(bytes));
  };
  row("parameters", peak.parameters);
  row("gradients", peak.gradients);
  row("optimizer state", peak.optimizer_state);
  row("master weights", peak.master_weights);
  row("buffers of ZeRO", peak.comm_buffers);
  row("activations", peak.activations);
  if (peak.other > 0) row("the optimizer's", peak.other);
  const zero::OffloadedMemory& offload = rank.step.offload;
  if (!rank.on_gpu && offload.file_buffers > 0) row("buffers for files", offload.file_buffers);
  if (!rank.on_gpu) row("the program", rank.process_bytes);
  row("together", rank.bytes());
  if (rank.on_gpu) {
    text += fmt::format("and {} of its host for the program\n", ShowSize(rank.process_bytes));
    if (offload.host > 0) text += fmt::format("and {} there of state\n", ShowSize(offload.host));
  }
  if (offload.files > 0) text += fmt::format("and {} in files\n", ShowSize(offload.files));
  text += fmt::format("a host with {}: {}\n", Counted(prediction.ranks_of_host, "rank"),
                      ShowSize(prediction.host_bytes()));
  text += DescribePadding(prediction.job) + DescribeLoad(prediction) + "\n";
  text += DescribeCapacity(prediction);
  if (!prediction.changes.empty()) text += "\nless with\n";
  for (const Change& change : prediction.changes) {
    text += fmt::format("  {:<48}{:>11}\n", change.what, ShowSize(change.bytes));
  }
  return text;
}

nlohmann::ordered_json ToJson(const Prediction& prediction) {
  const MemoryPrediction& rank = prediction.rank;
  nlohmann::ordered_json json = {
      {"ranks", prediction.job.setting.ranks},
      {"hosts", prediction.hosts},
      {"micro_batch", prediction.config.batch.train_micro_batch_size_per_gpu},
      {"seq_len", prediction.job.seq_len},
      {"stage", prediction.config.zero_optimization.stage},
      {"tier", rank.on_gpu ? "device" : "host"},
      {"planned", engine::ToJson(rank.step)},
      {"process", rank.process_bytes},
      {"rank_device", rank.device_bytes()},
      {"rank_host", rank.host_bytes()},
      {"host", prediction.host_bytes()}};
  if (prediction.worst_load) {
    json["expert_load"] = std::min(prediction.job.expert_load, prediction.most_load());
    json["most_expert_load"] = prediction.most_load();
    json["rank_at_most_expert_load"] = prediction.worst_load->bytes();
  }
  if (prediction.capacity) {
    json["room"] = *prediction.capacity;
    json["fits"] = prediction.fits();
    json["largest_micro_batch"] = prediction.largest_micro_batch;
  }
  json["changes"] = nlohmann::ordered_json::array();
  for (const Change& change : prediction.changes) {
    json["changes"].push_back({{"change", change.what}, {"bytes", change.bytes}});
  }
  return json;
}

std::vector<config::ModelStateBytes> CountRankBytes(const config::MemoryQuestion& question) {
  config::DsConfig config;
  config.bf16.enabled = true;
  const std::int64_t ranks = question.num_gpus_per_node * question.num_nodes;
  std::vector<config::ModelStateBytes> stages;
  for (int stage = 0; stage <= 3; ++stage) {
    stages.push_back(
        config::CountModelStateBytes({.trainable = question.params,
                                      .shard_ranks = ranks,
                                      .sharding = config::ShardingOfStage(stage, ranks),
                                      .types = config::ChooseStateTypes(config)}));
  }
  return stages;
}

std::string DrawRankTable(const std::vector<config::ModelStateBytes>& stages) {
  const auto size = [](std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); };
  std::string text =
      "\nheld by each rank of `dsrun train` in bf16 with Adam, nothing offloaded\n\n"
      "ZeRO  parameters   gradients   optimizer     masters    together\n";
  int stage = 0;
  for (const config::ModelStateBytes& bytes : stages) {
    text += fmt::format("{:>4} {:>11} {:>11} {:>11} {:>11} {:>11}\n", stage++,
                        size(bytes.parameters), size(bytes.gradients), size(bytes.optimizer_state),
                        size(bytes.master_weights), size(bytes.total()));
  }
  return text;
}

}  // namespace ds::plan
