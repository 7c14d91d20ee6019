#include "runtime/plan/memory/stage_passes.h"

#include <algorithm>

namespace ds::engine {
namespace {

zero::Pass::Kind KindOf(pipeline::Task::Kind kind) {
  switch (kind) {
    case pipeline::Task::Kind::kForward:
      return zero::Pass::Kind::kForward;
    case pipeline::Task::Kind::kBackward:
      return zero::Pass::Kind::kBackward;
    case pipeline::Task::Kind::kInputGradient:
      return zero::Pass::Kind::kInputGradient;
    case pipeline::Task::Kind::kWeightGradient:
      break;
  }
  return zero::Pass::Kind::kWeightGradient;
}

}  // namespace

std::vector<zero::Pass> ListPasses(const pipeline::PipelineSchedule& schedule, int stage,
                                   const std::vector<zero::UnitRange>& chunks) {
  std::vector<zero::Pass> passes;
  for (const pipeline::Task& task : schedule.tasks_of(stage)) {
    const int virtual_stage = schedule.VirtualStageAt({stage, task.chunk});
    const bool is_first = virtual_stage == 0;
    const bool is_last = virtual_stage + 1 == schedule.shape().virtual_stages();
    const bool from_here = !is_first && schedule.LocationOf(virtual_stage - 1).stage == stage;
    const bool stays_here = !is_last && schedule.LocationOf(virtual_stage + 1).stage == stage;
    zero::Pass pass{.kind = KindOf(task.kind),
                    .micro_batch = task.micro_batch,
                    .begins = task.chunk == 0,
                    .sends = !is_last && !stays_here,
                    .returns = !is_first && !from_here,
                    .hands_back = from_here,
                    .was_handed = stays_here};
    if (chunks.size() > 1) pass.units = chunks[static_cast<std::size_t>(task.chunk)];
    passes.push_back(pass);
  }
  return passes;
}

int CountPlannedMicroBatches(pipeline::ScheduleKind kind, int stages, std::int64_t micro_batches) {
  // The result is a multiple of the stages if the step's micro-batches are, as an interleaved
  // schedule requires. 1F1B holds at most one micro-batch per stage, and two chunks per stage at
  // most two.
  const bool keeps_all = kind == pipeline::ScheduleKind::kGPipe;
  const std::int64_t most = keeps_all ? kMostHeld : 4 * stages + micro_batches % stages;
  return static_cast<int>(std::min(micro_batches, most));
}

void BufferPartitions(const PartitionBuffer& buffer, const std::vector<bool>& recomputed,
                      std::vector<zero::BlockActivations>* blocks) {
  std::int64_t more = (buffer.count - 1) * buffer.part_bytes;  // for the first block
  for (std::size_t i = 0; i < recomputed.size(); ++i) {
    if (!recomputed[i]) continue;
    zero::BlockActivations& block = (*blocks)[i];
    block.saved += more;
    block.backward += more;
    if (more > 0) block.forward += more;
    more = -buffer.part_bytes;
  }
}

}  // namespace ds::engine
