#include "runtime/plan/estimate/rank_table.h"

#include <fmt/format.h>

#include <cstdint>

#include "runtime/base/byte_size.h"
#include "runtime/config/ds_config.h"

namespace ds::plan {

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
