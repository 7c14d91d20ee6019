#include "runtime/rank/planned_memory.h"

#include <cmath>

#include "runtime/base/byte_size.h"
#include "runtime/engine/plan/job_memory.h"
#include "runtime/models/memory/read_decoder_shape.h"

namespace ds::rank {

std::optional<zero::StepMemory> PlanRankMemory(const nlohmann::ordered_json& model,
                                               const config::DsConfig& config,
                                               const config::TrainJob& job,
                                               const comm::Communicator& world) {
  const auto shape = models::ReadDecoderShape(model);
  const auto recompute = config::ParseRecompute(job.recompute);
  if (!shape.ok() || !recompute.ok()) return std::nullopt;
  return engine::PlanJobMemory(config,
                               {.model = *shape,
                                .seq_len = job.seq_len,
                                .recompute = *recompute,
                                .setting = {.ranks = world.size(),
                                            .calls = {.spans_hosts = world.spans_hosts(),
                                                      .on_gpu = !world.device().is_cpu()}}});
}

std::string ComparePlan(const zero::StepMemory& planned, const device::HeldBytes& measured) {
  const auto size = [](std::int64_t bytes) { return ByteSize(static_cast<std::uint64_t>(bytes)); };
  const std::int64_t peak = planned.peak.total();
  const double share = 100.0 * static_cast<double>(measured.peak) / static_cast<double>(peak);
  return "memory of a rank's tensors: planned " + size(peak) + " at the most, in " + planned.when +
         "; measured " + size(measured.peak) + " (" + std::to_string(std::lround(share)) + " %)";
}

}  // namespace ds::rank
