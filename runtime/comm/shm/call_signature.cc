#include "runtime/comm/shm/call_signature.h"

#include <string_view>

#include "runtime/base/check.h"

namespace ds::comm {
namespace {

std::string_view KindName(CallKind kind) {
  switch (kind) {
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kAllReduce:
      return "all-reduce";
    case CallKind::kReduce:
      return "reduce";
    case CallKind::kReduceScatter:
      return "reduce-scatter";
    case CallKind::kAllGather:
      return "all-gather";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kGather:
      return "gather";
    case CallKind::kScatter:
      return "scatter";
    case CallKind::kAllToAll:
      return "all-to-all";
    case CallKind::kSend:
      return "send";
    case CallKind::kRecv:
      return "receive";
  }
  DS_CHECK_MSG(false, "unknown collective");
}

// " from rank 3", or nothing for a call without a root.
std::string RootPhrase(const CallSignature& call) {
  if (call.root < 0) return "";
  const bool outward = call.kind == CallKind::kBroadcast || call.kind == CallKind::kScatter ||
                       call.kind == CallKind::kRecv;
  return (outward ? " from rank " : " to rank ") + std::to_string(call.root);
}

bool Reduces(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce ||
         kind == CallKind::kReduceScatter;
}

}  // namespace

std::string Describe(const CallSignature& call) {
  std::string text(KindName(call.kind));
  if (call.kind == CallKind::kBarrier) return text;
  text += " of " + std::to_string(call.count) + " " + std::string(ElementTypeName(call.type));
  if (Reduces(call.kind)) text += " (" + std::string(ReduceOpName(call.op)) + ")";
  return text + RootPhrase(call);
}

}  // namespace ds::comm
