#include "runtime/engine/plan/job_memory.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/config/muon_memory.h"
#include "runtime/models/memory/block_sizes.h"
#include "runtime/models/spec/tensor_plan.h"

namespace ds::engine {
namespace {

using models::ParameterSize;

// Sorts into lists of those for which `is` is the same, in order of first appearance.
template <typename Is>
std::vector<std::vector<ParameterSize>> SortBy(const std::vector<ParameterSize>& parameters,
                                               Is is) {
  std::vector<std::vector<ParameterSize>> lists;
  for (const bool first : {true, false}) {
    std::vector<ParameterSize> list;
    for (const ParameterSize& parameter : parameters) {
      if ((is(parameter) == is(parameters.front())) == first) list.push_back(parameter);
    }
    if (!list.empty()) lists.push_back(std::move(list));
  }
  return lists;
}

// UnitList sorts, as zero::BucketParameters does, what of a model travels rounded and what Muon
// updates.
class UnitList {
 public:
  UnitList(const config::DsConfig& config, const zero::StepMemoryInput& step)
      : muon_(std::get_if<config::MuonConfig>(&config.optimizer.algorithm)),
        rounds_(step.rounds_weights || step.rounds_gradients) {}

  std::vector<zero::UnitShape> List(const models::DecoderSpec& model) const {
    std::vector<zero::UnitShape> units;
    for (const models::BlockSizes& block : models::ListBlockSizes(model)) {
      units.push_back({.also_reads = block.also_reads, .backward_reads = block.backward_reads});
      const auto rounds = [&](const ParameterSize& each) { return rounds_ && each.is_matrix; };
      for (const auto& parameters : SortBy(block.parameters, rounds)) {
        units.back().buckets.push_back(MakeBucket(parameters));
        units.back().buckets.back().rounded = rounds(parameters.front());
      }
    }
    return units;
  }

 private:
  bool IsMuons(const ParameterSize& each) const {
    return muon_ != nullptr && each.is_matrix && config::IsMuonName(each.module);
  }

  zero::BucketShape MakeBucket(const std::vector<ParameterSize>& parameters) const {
    zero::BucketShape bucket;
    for (const auto& alike : SortBy(parameters, std::bind_front(&UnitList::IsMuons, this))) {
      zero::RangeShape range{.first = static_cast<int>(bucket.numels.size()),
                             .muon = IsMuons(alike.front())};
      for (const ParameterSize& each : alike) {
        bucket.numels.push_back(each.numel());
        if (!range.muon) continue;
        const bool gram = muon_->newton_schulz == config::NewtonSchulz::kGram;
        range.iteration = std::max(range.iteration,
                                   config::CountIterationElements(each.rows, each.columns, gram));
      }
      bucket.ranges.push_back(range);
    }
    return bucket;
  }

  const config::MuonConfig* muon_;
  bool rounds_;
};

// Finds what an optimizer or a way of reducing makes that no plan knows.
std::string FindUnknown(const config::DsConfig& config) {
  const config::OptimizerAlgorithm& algorithm = config.optimizer.algorithm;
  if (std::holds_alternative<config::OneBitAdamConfig>(algorithm) ||
      std::holds_alternative<config::OneBitLambConfig>(algorithm) ||
      std::holds_alternative<config::ZeroOneAdamConfig>(algorithm)) {
    return "what 1-bit optimizers hold";
  }
  if (config.sparse_gradients) return "what sparse_gradients hold";
  return config.torch_autocast.enabled ? "what torch_autocast makes" : "";
}

models::MicroBatch MakeMicroBatch(const config::DsConfig& config, const JobShape& job) {
  return {.samples = config.batch.train_micro_batch_size_per_gpu,
          .seq_len = job.seq_len,
          .type = config.training_dtype(),
          .on_gpu = job.setting.on_gpu,
          .mlp_tiles = job.mlp_tiles,
          .tensor_ranks = config.parallel.tensor,
          .keeps_parts = config.activation_checkpointing.partition_activations,
          .documents = job.packs_documents};
}

}  // namespace

StatusOr<JobShape> DescribeJob(const config::TrainJob& job, models::DecoderSpec model,
                               const zero::StepSetting& setting) {
  if (job.adapts() || !job.freeze.empty()) {
    return UnimplementedError("what ranks hold of a frozen model is not known yet");
  }
  DS_ASSIGN_OR_RETURN(const config::RecomputeChoice recompute,
                      config::ParseRecompute(job.recompute));
  const bool is_cut =
      !job.tokenizer.empty() && !std::all_of(job.data.begin(), job.data.end(), config::IsTokenFile);
  return JobShape{.model = std::move(model),
                  .seq_len = job.seq_len,
                  .recompute = recompute,
                  .mlp_tiles = job.mlp_tiles,
                  .packs_documents = is_cut && job.packing != "none",
                  .setting = setting};
}

Status CheckMemoryIsKnown(const config::DsConfig& config, const JobShape& job) {
  if (config.parallel.pipeline > 1) return UnimplementedError("what stages hold is not known yet");
  if (config.parallel.sequence > 1) {
    return UnimplementedError(
        "what ranks hold that have a sample's tokens between them is not "
        "known yet");
  }
  if (const std::string unknown = FindUnknown(config); !unknown.empty()) {
    return UnimplementedError(unknown + " is not known");
  }
  DS_RETURN_IF_ERROR(models::CheckMemoryIsKnown(job.model));
  DS_RETURN_IF_ERROR(models::CheckCountable(job.model, MakeMicroBatch(config, job)));
  return models::TensorPlan::Create(job.model, /*part=*/0, config.parallel.tensor).status();
}

zero::StepMemory PlanJobMemory(const config::DsConfig& config, const JobShape& job) {
  const int tensor = config.parallel.tensor;
  const auto cut = models::TensorPlan::Create(job.model, /*part=*/0, tensor);
  DS_CHECK(cut.ok());
  const models::DecoderSpec& model = cut->slice();
  const models::MicroBatch batch = MakeMicroBatch(config, job);
  zero::StepSetting setting = job.setting;
  setting.ranks /= tensor;
  if (setting.ranks_of_host > 0) {
    setting.ranks_of_host = std::max(1, setting.ranks_of_host / tensor);
  }
  zero::StepMemoryInput input = zero::DescribeStep(config, setting);
  input.units = UnitList(config, input).List(model);
  for (const models::BlockBytes& block : models::ListBlockBytes(model, batch, job.recompute)) {
    input.activations.push_back(
        {.kept = block.kept, .forward = block.forward, .backward = block.backward});
  }
  const std::int64_t ids = job.packs_documents ? 3 : 2;  // tokens, labels and documents
  input.batch_bytes = ids * std::int64_t{sizeof(std::int64_t)} * batch.tokens() +
                      models::CountBiasBytes(model, batch);
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
                                 {"other", peak.other},
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
