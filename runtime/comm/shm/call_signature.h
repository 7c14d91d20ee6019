#pragma once

// CallSignature: describes the call that a rank is about to make; ranks publish it so that peers
// can compare. This header also has the kinds of call, element types and reductions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ds::comm {

enum class ElementType : std::uint8_t {
  kFloat32,
  kFloat64,
  kBFloat16,
  kFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
};

std::size_t ElementBytes(ElementType type);
// Returns "float32", "bfloat16", "int64", ...
std::string_view ElementTypeName(ElementType type);
bool IsFloatingPoint(ElementType type);

// Selects how a reduction combines the ranks' values.
enum class ReduceOp : std::uint8_t {
  kSum,
  kAvg,  // the sum divided by the number of ranks; floating point only
  kMax,
  kMin,
  kProduct,
};

// Returns "sum", "avg", "max", "min" or "product".
std::string_view ReduceOpName(ReduceOp op);

enum class CallKind : std::uint8_t {
  kBarrier,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kGather,
  kScatter,
  kAllToAll,
  kSend,
  kRecv,
  kJoin,  // creation of a group; `count` is a hash of name and ranks
};

// CallTag: the purpose of a call in the caller's words, such as a parameter's name. It
// distinguishes calls that are otherwise equal. Longer texts are truncated to their last 47 bytes.
// Plain data.
class CallTag {
 public:
  CallTag() = default;
  explicit CallTag(std::string_view text);
  std::string_view text() const { return text_.data(); }
  // Returns false for received bytes that are not a terminated text.
  bool ends() const { return text_.back() == 0; }
  friend bool operator==(const CallTag&, const CallTag&) = default;

 private:
  std::array<char, 48> text_ = {};  // zero-terminated
};

// This struct is stored in shared memory: plain data only.
struct CallSignature {
  CallKind kind = CallKind::kBarrier;
  ElementType type = ElementType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t root = -1;   // or the peer of a send or receive; -1: none
  std::uint64_t count = 0;  // elements, as the collective counts them (see host_group.h)
  CallTag tag = {};

  friend bool operator==(const CallSignature&, const CallSignature&) = default;
};

// Returns false for received bytes that are not a valid signature. Do not use such a signature
// otherwise.
bool IsCall(const CallSignature& call);

// Returns for example "all-reduce of 1024 float32 (sum)", "broadcast of 3 int64 from rank 0",
// "barrier" or "all-gather of 30 float32 for layer.0.w".
std::string Describe(const CallSignature& call);

}  // namespace ds::comm
