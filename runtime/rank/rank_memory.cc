#include "runtime/rank/rank_memory.h"

#include <cmath>
#include <utility>

#include "runtime/base/byte_size.h"
#include "runtime/device/counting_allocator.h"
#include "runtime/engine/plan/job_memory.h"
#include "runtime/telemetry/step_metrics.h"

namespace ds::rank {

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
}

nlohmann::ordered_json RankMemory::Report() const {
  return telemetry::MakeMemoryReport(ledger_, meter_.get());
}

std::optional<std::string> RankMemory::ComparePlan(nlohmann::ordered_json* report) {
  if (!planned_ || !is_first_of_stage_ || std::exchange(has_compared_, true)) return std::nullopt;
  (*report)["planned"] = engine::ToJson(*planned_);
  const auto size = [](std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); };
  const std::int64_t first = planned_->first_step_peak, measured = meter_->allocated().peak;
  const double share = 100.0 * static_cast<double>(measured) / static_cast<double>(first);
  return "memory of a rank's tensors" + stage_ + ": planned " + size(first) +
         " in the first step, measured " + size(measured) + " (" +
         std::to_string(std::lround(share)) + " %); later at most " + size(planned_->peak.total()) +
         ", in " + planned_->when;
}

}  // namespace ds::rank
