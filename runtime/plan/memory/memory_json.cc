#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/plan/memory/job_memory.h"

namespace ds::engine {

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
  json["traffic"] = {{"all_gather", memory.traffic.all_gather},
                     {"reduce_scatter", memory.traffic.reduce_scatter},
                     {"all_reduce", memory.traffic.all_reduce},
                     {"all_to_all", memory.traffic.all_to_all},
                     {"between_stages", memory.traffic.between_stages}};
  for (const auto& [name, window] : {std::pair("parameters", memory.windows.parameters),
                                     std::pair("gradients", memory.windows.gradients)}) {
    json["windows"][name] = {{"whole_step", window.whole_step}, {"why", window.why}};
  }
  const zero::AwayMemory& away = memory.away;
  if (away != zero::AwayMemory{}) {
    json["away"] = {
        {"host", away.host}, {"files", away.files}, {"file_buffers", away.file_buffers}};
  }
  return json;
}

}  // namespace ds::engine
