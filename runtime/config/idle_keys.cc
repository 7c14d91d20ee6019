#include "runtime/config/idle_keys.h"

#include <nlohmann/json.hpp>

namespace ds::config {

std::vector<std::string> ListIdleKeys(std::string_view given, const DsConfig& config,
                                      RankPlacement placement) {
  using Json = nlohmann::ordered_json;
  std::vector<std::string> idle;
  if (!placement.on_cpu) return idle;
  if (config.activation_checkpointing.cpu_checkpointing) {
    idle.emplace_back(
        "activation_checkpointing.cpu_checkpointing moves nothing: the ranks compute on the CPU");
  }
  // Stage 3 sets overlap_comm by default, which is not worth a message, so only `given` counts.
  const Json json = Json::parse(given, nullptr, /*allow_exceptions=*/false);
  const Json::json_pointer overlap("/zero_optimization/overlap_comm");
  if (placement.one_host && json.is_object() && json.contains(overlap) &&
      json.at(overlap) == true) {
    idle.emplace_back(
        "zero_optimization.overlap_comm has no effect between CPU ranks of one host: the cores "
        "that "
        "compute also copy the data");
  }
  return idle;
}

}  // namespace ds::config
