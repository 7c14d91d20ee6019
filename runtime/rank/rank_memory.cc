#include "runtime/rank/rank_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/base/byte_size.h"
#include "runtime/device/counting_allocator.h"
#include "runtime/engine/report/step_metrics.h"
#include "runtime/plan/memory/job_memory.h"

namespace ds::rank {

using Routes = std::vector<std::vector<std::int64_t>>;

namespace {

double Mean(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

}  // namespace

void RankMemory::Open(c10::Device device) {
  if (device.is_cpu()) device::CountingAllocator::Install();
  meter_ = std::make_unique<device::ActivationMeter>(ledger_, device);
  on_gpu_ = !device.is_cpu();
}

void RankMemory::Plan(const models::DecoderSpec& model, const config::DsConfig& config,
                      const config::TrainJob& job, const comm::RankIdentity& identity,
                      const topology::Mesh& mesh) {
  using topology::Axis;
  constexpr topology::AxisSet kOthers{Axis::kReplicate, Axis::kShard, Axis::kSequence,
                                      Axis::kTensor};
  is_first_of_stage_ = mesh.MemberOf(identity.rank, kOthers).index == 0;
  auto shape = engine::DescribeJob(job, model,
                                   {.ranks = identity.world_size,
                                    .ranks_of_host = identity.local_world_size,
                                    .on_gpu = on_gpu_});
  if (!shape.ok()) return;
  shape->efficiency = efficiency_;
  if (!engine::CheckMemoryIsKnown(config, *shape).ok()) return;
  shape->stage = mesh.MemberOf(identity.rank, {Axis::kPipeline}).index;
  if (config.parallel.pipeline > 1) stage_ = " on stage " + std::to_string(*shape->stage);
  planned_ = engine::PlanJobMemory(config, *shape);
  job_ = {config, *std::move(shape)};
  for (const int rank : mesh.ExpertGroupOf(identity.rank)) {
    if (mesh.MemberOf(rank, kOthers).index == 0) expert_part_ = mesh.ExpertPartOf(identity.rank);
  }
}

nlohmann::ordered_json RankMemory::Report() const {
  return telemetry::MakeMemoryReport(ledger_, meter_.get());
}

std::vector<double> RankMemory::FindLoads(const Routes& expert_routes) const {
  const auto loads = telemetry::FindExpertLoads(expert_routes, job_->config.parallel.expert);
  if (loads.size() < 2 || !expert_part_) return {};
  const auto holds_less = [](const std::vector<double>& a, const std::vector<double>& b) {
    return Mean(a) < Mean(b);
  };
  const auto fullest = std::max_element(loads.begin(), loads.end(), holds_less);
  return fullest - loads.begin() == *expert_part_ ? *fullest : std::vector<double>();
}

std::optional<std::string> RankMemory::ComparePlan(const Routes& expert_routes,
                                                   nlohmann::ordered_json* report) {
  if (!planned_ || std::exchange(has_compared_, true)) return std::nullopt;
  if (is_first_of_stage_) (*report)["planned"] = engine::ToJson(*planned_);
  const bool has_experts_apart = job_->config.parallel.expert > 1 && !expert_routes.empty();
  const std::vector<double> loads = FindLoads(expert_routes);
  if (has_experts_apart ? loads.empty() : !is_first_of_stage_) return std::nullopt;
  const std::int64_t first = planned_->first_step_peak, measured = meter_->allocated().peak;
  const auto size = [](std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); };
  const auto share = [&](std::int64_t planned) {
    const double percent = 100.0 * static_cast<double>(measured) / static_cast<double>(planned);
    return " (" + std::to_string(std::lround(percent)) + " %)";
  };
  std::string text = "memory of a rank's tensors" + stage_ + ": planned " + size(first) +
                     " in the first step, measured " + size(measured) + share(first);
  if (!loads.empty()) {
    job_->shape.layer_loads = loads;
    const std::int64_t loaded = engine::PlanJobMemory(job_->config, job_->shape).first_step_peak;
    text += fmt::format(
        "; its experts got the most, {:.2f} x an even load, {:.2f} x in one layer: planned with "
        "that {}{}",
        Mean(loads), *std::max_element(loads.begin(), loads.end()), size(loaded), share(loaded));
  }
  return text + "; later at most " + size(planned_->peak.total()) + ", in " + planned_->when;
}

}  // namespace ds::rank
