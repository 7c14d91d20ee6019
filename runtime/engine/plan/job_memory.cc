#include "runtime/engine/plan/job_memory.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

namespace ds::engine {
namespace {

std::vector<zero::UnitShape> ListUnits(const models::DecoderSpec& model, bool muon) {
  std::vector<zero::UnitShape> units;
  for (models::BlockSizes& block : models::ListBlockSizes(model)) {
    units.push_back(
        {.buckets = {{.numels = std::move(block.numels), .muon = muon ? block.matrices : 0}},
         .also_reads = std::move(block.also_reads),
         .backward_reads = block.backward_reads});
  }
  return units;
}

// What an optimizer or a way of communicating makes that nobody has compared with what ranks hold.
std::string FindUnknown(const config::DsConfig& config) {
  const config::OptimizerAlgorithm& algorithm = config.optimizer.algorithm;
  const config::ZeroConfig& zero = config.zero_optimization;
  if (std::holds_alternative<config::MuonConfig>(algorithm)) return "what Muon holds";
  if (std::holds_alternative<config::OneBitAdamConfig>(algorithm) ||
      std::holds_alternative<config::OneBitLambConfig>(algorithm) ||
      std::holds_alternative<config::ZeroOneAdamConfig>(algorithm)) {
    return "what 1-bit optimizers hold";
  }
  if (zero.hpz_partition_size > 1 || zero.quantized_weights || zero.quantized_gradients) {
    return "what ZeRO++ holds";
  }
  if (config.sparse_gradients) return "what sparse_gradients hold";
  return config.torch_autocast.enabled ? "what torch_autocast makes" : "";
}

}  // namespace

Status CheckMemoryIsKnown(const config::DsConfig& config, const models::DecoderSpec& model) {
  if (config.parallel.ranks_of_a_sample() > 1) {
    return UnimplementedError("what ranks hold that share a sample is not known yet");
  }
  if (const std::string unknown = FindUnknown(config); !unknown.empty()) {
    return UnimplementedError(unknown + " is not known");
  }
  return models::CheckMemoryIsKnown(model);
}

zero::StepMemory PlanJobMemory(const config::DsConfig& config, const JobShape& job) {
  const models::MicroBatch batch{.samples = config.batch.train_micro_batch_size_per_gpu,
                                 .seq_len = job.seq_len,
                                 .type = config.training_dtype(),
                                 .on_gpu = job.setting.calls.on_gpu,
                                 .mlp_tiles = job.mlp_tiles};
  zero::StepMemoryInput input = zero::DescribeStep(config, job.setting);
  input.units =
      ListUnits(job.model, std::holds_alternative<config::MuonConfig>(config.optimizer.algorithm));
  for (const models::BlockBytes& block : models::ListBlockBytes(job.model, batch, job.recompute)) {
    input.activations.push_back(
        {.kept = block.kept, .forward = block.forward, .backward = block.backward});
  }
  constexpr std::int64_t kIdBytes = 2 * sizeof(std::int64_t);  // tokens and labels
  input.batch_bytes = kIdBytes * batch.tokens();
  return zero::PlanStepMemory(input);
}

nlohmann::ordered_json ToJson(const zero::StepMemory& memory) {
  const zero::HeldMemory& peak = memory.peak;
  nlohmann::ordered_json json = {{"peak", peak.total()},
                                 {"when", memory.when},
                                 {"parameters", peak.parameters},
                                 {"gradients", peak.gradients},
                                 {"optimizer_state", peak.optimizer_state},
                                 {"master_weights", peak.master_weights},
                                 {"comm_buffers", peak.comm_buffers},
                                 {"activations", peak.activations},
                                 {"peak_activations", memory.peak_activations},
                                 {"first_step", memory.first_step_peak},
                                 {"between_steps", memory.between_steps.total()}};
  const zero::AwayMemory& away = memory.away;
  if (away != zero::AwayMemory{}) {
    json["away"] = {
        {"host", away.host}, {"files", away.files}, {"file_buffers", away.file_buffers}};
  }
  return json;
}

}  // namespace ds::engine
