#include "runtime/engine/plan/stage_cut.h"

#include "runtime/models/spec/count_parameters.h"
#include "runtime/pipeline/partition.h"

namespace ds::engine {

StatusOr<StageOrder> ParseStageOrder(std::string_view schedule, std::int64_t virtual_stages,
                                     const config::DsConfig& config) {
  DS_ASSIGN_OR_RETURN(const pipeline::ScheduleKind kind, pipeline::ParseScheduleKind(schedule));
  const StageOrder order{kind, virtual_stages > 0 ? static_cast<int>(virtual_stages)
                                                  : pipeline::DefaultChunksOf(kind)};
  const pipeline::PipelineShape shape{
      .stages = config.parallel.pipeline,
      .chunks = order.chunks,
      .micro_batches = static_cast<int>(config.batch.gradient_accumulation_steps)};
  const Status fits = pipeline::Schedule::Create(kind, shape).status();
  if (!fits.ok()) return fits.WithContext("--pp_schedule");
  return order;
}

StatusOr<std::vector<int>> CutStages(const models::DecoderSpec& model,
                                     const config::DsConfig& config, int chunks) {
  DS_ASSIGN_OR_RETURN(const std::vector<models::BlockCount> counts, models::CountBlocks(model));
  std::vector<pipeline::WeighedBlock> blocks;
  for (const models::BlockCount& count : counts) blocks.push_back({count.name, count.parameters});
  auto cut =
      pipeline::CutBlocks(config.pipeline.partition, blocks, config.parallel.pipeline * chunks);
  if (!cut.ok()) return cut.status().WithContext("pipeline.partition");
  return cut;
}

}  // namespace ds::engine
