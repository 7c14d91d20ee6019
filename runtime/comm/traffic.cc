#include "runtime/comm/traffic.h"

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/check.h"

namespace ds::comm {

std::string_view TrafficKindName(TrafficKind kind) {
  switch (kind) {
    case TrafficKind::kAllReduce:
      return "all_reduce";
    case TrafficKind::kAllGather:
      return "all_gather";
    case TrafficKind::kReduceScatter:
      return "reduce_scatter";
    case TrafficKind::kAllToAll:
      return "all_to_all";
    case TrafficKind::kBroadcast:
      return "broadcast";
    case TrafficKind::kReduce:
      return "reduce";
    case TrafficKind::kGather:
      return "gather";
    case TrafficKind::kScatter:
      return "scatter";
    case TrafficKind::kPointToPoint:
      return "p2p";
  }
  DS_CHECK_MSG(false, "unknown kind of call");
}

Traffic Since(const Traffic& before, const Traffic& now) {
  Traffic delta = now;
  for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
    delta.kinds[kind].calls -= before.kinds[kind].calls;
    delta.kinds[kind].bytes -= before.kinds[kind].bytes;
  }
  if (delta.between_hosts && before.between_hosts) {
    delta.between_hosts->sent -= before.between_hosts->sent;
    delta.between_hosts->received -= before.between_hosts->received;
  }
  return delta;
}

nlohmann::ordered_json ToJson(const Traffic& traffic) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
    const Traffic::OfKind& of_kind = traffic.kinds[kind];
    if (of_kind.calls == 0) continue;
    json[std::string(TrafficKindName(static_cast<TrafficKind>(kind)))] = {{"calls", of_kind.calls},
                                                                          {"bytes", of_kind.bytes}};
  }
  if (traffic.between_hosts) {
    json["between_hosts"] = {{"sent", traffic.between_hosts->sent},
                             {"received", traffic.between_hosts->received}};
  }
  return json;
}

Traffic TrafficCounters::Read() const {
  Traffic traffic;
  for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
    traffic.kinds[kind] = {.calls = cells_[kind].calls.load(std::memory_order_relaxed),
                           .bytes = cells_[kind].bytes.load(std::memory_order_relaxed)};
  }
  return traffic;
}

}  // namespace ds::comm
