#pragma once

// CallSignature: what a rank is about to do, published so that its peers can compare; and its
// words: the kinds of call, the element types that the CPU collectives move, the reductions.

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
// "float32", "bfloat16", "int64", ...
std::string_view ElementTypeName(ElementType type);
bool IsFloatingPoint(ElementType type);

// Tells how a reduction combines the ranks' values.
enum class ReduceOp : std::uint8_t {
  kSum,
  kAvg,  // the sum divided by the number of ranks; floating point only
  kMax,
  kMin,
  kProduct,
};

// "sum", "avg", "max", "min", "product".
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
  kJoin,  // the making of a group; `count` tells lists of ranks apart
};

// CallTag says what a call is about, in its caller's words: a parameter's name, say. It tells calls
// apart that are equal in all else. Of a longer text the end counts. Plain data.
class CallTag {
 public:
  CallTag() = default;
  explicit CallTag(std::string_view text);
  std::string_view text() const { return text_.data(); }
  // False of bytes from elsewhere that are no text.
  bool ends() const { return text_.back() == 0; }
  friend bool operator==(const CallTag&, const CallTag&) = default;

 private:
  std::array<char, 48> text_ = {};  // ends with a zero
};

// Lies in shared memory: plain data only.
struct CallSignature {
  CallKind kind = CallKind::kBarrier;
  ElementType type = ElementType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t root = -1;   // or the peer of a send or receive; -1: none
  std::uint64_t count = 0;  // elements, as the collective counts them (see host_group.h)
  CallTag tag = {};

  friend bool operator==(const CallSignature&, const CallSignature&) = default;
};

// False of bytes from elsewhere that are no signature; nothing else may be asked of those.
bool IsCall(const CallSignature& call);

// "all-reduce of 1024 float32 (sum)", "broadcast of 3 int64 from rank 0", "barrier", "all-gather of
// 30 float32 for layer.0.w".
std::string Describe(const CallSignature& call);

}  // namespace ds::comm
