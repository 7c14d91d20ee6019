#include "runtime/comm/shm/call_signature.h"

#include <algorithm>
#include <array>

#include "runtime/base/check.h"

namespace ds::comm {
namespace {

struct Traits {
  std::string_view name;
  std::size_t bytes;
  bool floating_point;
};

constexpr std::array<Traits, 10> kTraits = {{
    {"float32", 4, true},
    {"float64", 8, true},
    {"bfloat16", 2, true},
    {"float16", 2, true},
    {"int8", 1, false},
    {"uint8", 1, false},
    {"int16", 2, false},
    {"int32", 4, false},
    {"int64", 8, false},
    {"bool", 1, false},
}};

const Traits& TraitsOf(ElementType type) { return kTraits[static_cast<std::size_t>(type)]; }

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
    case CallKind::kJoin:
      return "the making of";
  }
  DS_CHECK_MSG(false, "unknown collective");
}

// Returns " from rank 3", or nothing for a call without a root.
std::string RootPhrase(const CallSignature& call) {
  if (call.root < 0) return "";
  const bool outward = call.kind == CallKind::kBroadcast || call.kind == CallKind::kScatter ||
                       call.kind == CallKind::kRecv;
  return (outward ? " from rank " : " to rank ") + std::to_string(call.root);
}

bool IsReduction(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce ||
         kind == CallKind::kReduceScatter;
}

}  // namespace

std::size_t ElementBytes(ElementType type) { return TraitsOf(type).bytes; }
std::string_view ElementTypeName(ElementType type) { return TraitsOf(type).name; }
bool IsFloatingPoint(ElementType type) { return TraitsOf(type).floating_point; }

std::string_view ReduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kProduct:
      return "product";
  }
  DS_CHECK_MSG(false, "unknown reduction");
}

CallTag::CallTag(std::string_view text) {
  const std::size_t most = text_.size() - 1;
  if (text.size() > most) text.remove_prefix(text.size() - most);
  std::copy(text.begin(), text.end(), text_.begin());
}

bool IsCall(const CallSignature& call) {
  return call.kind <= CallKind::kJoin && call.type <= ElementType::kBool &&
         call.op <= ReduceOp::kProduct && call.root >= -1 && call.tag.ends();
}

std::string Describe(const CallSignature& call) {
  std::string text(KindName(call.kind));
  if (call.kind == CallKind::kBarrier) return text;
  if (call.kind == CallKind::kJoin) return text + " group " + std::string(call.tag.text());
  text += " of " + std::to_string(call.count) + " " + std::string(ElementTypeName(call.type));
  if (IsReduction(call.kind)) text += " (" + std::string(ReduceOpName(call.op)) + ")";
  text += RootPhrase(call);
  if (!call.tag.text().empty()) text += " for " + std::string(call.tag.text());
  return text;
}

}  // namespace ds::comm
