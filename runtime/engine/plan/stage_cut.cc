#include "runtime/engine/plan/stage_cut.h"

#include "runtime/models/spec/count_parameters.h"
#include "runtime/pipeline/partition.h"

namespace ds::engine {

StatusOr<std::vector<int>> CutStages(const models::DecoderSpec& model,
                                     const config::DsConfig& config) {
  DS_ASSIGN_OR_RETURN(const std::vector<models::BlockCount> counts, models::CountBlocks(model));
  std::vector<pipeline::WeighedBlock> blocks;
  for (const models::BlockCount& count : counts) blocks.push_back({count.name, count.parameters});
  auto cut = pipeline::CutBlocks(config.pipeline.partition, blocks, config.parallel.pipeline);
  if (!cut.ok()) return cut.status().WithContext("pipeline.partition");
  return cut;
}

}  // namespace ds::engine
