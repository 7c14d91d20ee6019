#include "runtime/optim/kernels/flat_block.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime/device/parallel.h"
#include "runtime/optim/kernels/simd.h"

namespace ds::optim {
namespace {

constexpr std::int64_t kBlock = FlatBlock::kMaxCount;

// One loop over the op's streams. Inlined into each clone, so that it is vectorised for that
// clone's instruction set.
template <typename Op>
[[gnu::always_inline]] inline void Loop(const Op& op, const FlatBlock& block) {
  constexpr Streams kStreams = Op::kStreams;
  const Op own = op;
  float* __restrict parameter = block.parameter;
  const float* __restrict gradient = block.gradient;
  float* __restrict first = block.state[0];
  float* __restrict second = block.state[1];
  for (std::int64_t i = 0; i < block.count; ++i) {
    Element e;
    if constexpr (kStreams.reads_parameter) e.parameter = parameter[i];
    if constexpr (kStreams.reads_gradient) e.gradient = gradient[i];
    if constexpr (kStreams.states > 0) e.state[0] = first[i];
    if constexpr (kStreams.states > 1) e.state[1] = second[i];
    own(e);
    if constexpr (kStreams.states > 0 && kStreams.writes_states) first[i] = e.state[0];
    if constexpr (kStreams.states > 1 && kStreams.writes_states) second[i] = e.state[1];
    if constexpr (kStreams.writes_parameter) parameter[i] = e.parameter;
  }
}

// Elements of views with one common 16-bit type; pointers to absent views are null.
template <typename Narrow>
struct NarrowBlock {
  std::int64_t count = 0;
  Narrow* parameter = nullptr;
  const Narrow* gradient = nullptr;
  Narrow* state[2] = {};
  float gradient_scale = 1.0F;  // FlatViews::narrow_scale
};

// Upcasts the bits of a 16-bit type in the lower half of a word.
template <typename Narrow>
[[gnu::always_inline]] inline float WidenBits(std::uint32_t bits) {
  if constexpr (std::is_same_v<Narrow, BFloat16>) return WidenBFloat16Bits<float>(bits);
  return WidenFloat16Bits<float>(bits);
}
template <typename Narrow>
[[gnu::always_inline]] inline std::uint32_t RoundToBits(float value) {
  if constexpr (std::is_same_v<Narrow, BFloat16>) return RoundToBFloat16Bits<std::uint32_t>(value);
  return RoundToFloat16Bits<std::uint32_t>(value);
}

// Two adjacent elements are read and written as one word: so no instruction unpacks or packs 16-bit
// lanes. For a single element, `high` is not set.
template <bool kIsPair, typename Narrow>
[[gnu::always_inline]] inline void TakeNarrow(const Narrow* from, float* low, float* high) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, kIsPair ? 4 : 2);
  *low = WidenBits<Narrow>(word & 0xffffu);
  if constexpr (kIsPair) *high = WidenBits<Narrow>(word >> 16);
}
template <bool kIsPair, typename Narrow>
[[gnu::always_inline]] inline void PutNarrow(float low, float high, Narrow* to) {
  std::uint32_t word = RoundToBits<Narrow>(low);
  if constexpr (kIsPair) word |= RoundToBits<Narrow>(high) << 16;
  std::memcpy(to, &word, kIsPair ? 4 : 2);
}

// Updates one element or pair. Without a scale the gradient is used as it is: rounding it to its
// own type would not change it.
template <bool kIsPair, bool kScales, typename Op, typename Narrow>
[[gnu::always_inline]] inline void UpdateNarrowAt(const Op& op, const NarrowBlock<Narrow>& block,
                                                  std::int64_t i) {
  constexpr Streams kStreams = Op::kStreams;
  Element low, high;
  if constexpr (kStreams.reads_parameter) {
    TakeNarrow<kIsPair>(block.parameter + i, &low.parameter, &high.parameter);
  }
  if constexpr (kStreams.reads_gradient) {
    TakeNarrow<kIsPair>(block.gradient + i, &low.gradient, &high.gradient);
    if constexpr (kScales) {
      low.gradient = WidenBits<Narrow>(RoundToBits<Narrow>(low.gradient * block.gradient_scale));
      high.gradient = WidenBits<Narrow>(RoundToBits<Narrow>(high.gradient * block.gradient_scale));
    }
  }
  for (int s = 0; s < kStreams.states; ++s) {
    TakeNarrow<kIsPair>(block.state[s] + i, &low.state[s], &high.state[s]);
  }
  op(low);
  if constexpr (kIsPair) op(high);
  for (int s = 0; s < kStreams.states && kStreams.writes_states; ++s) {
    PutNarrow<kIsPair>(low.state[s], high.state[s], block.state[s] + i);
  }
  if constexpr (kStreams.writes_parameter) {
    PutNarrow<kIsPair>(low.parameter, high.parameter, block.parameter + i);
  }
}

// Loops over pairs, upcast and rounded in registers. Memory loads of the next elements overlap the
// arithmetic. They would not in separate loops for conversion and update.
template <bool kScales, typename Op, typename Narrow>
[[gnu::always_inline]] inline void LoopOverPairs(const Op& op, const NarrowBlock<Narrow>& block) {
  const Op own = op;
  const NarrowBlock<Narrow> own_block = block;
  std::int64_t i = 0;
#pragma GCC ivdep  // views are identical, element for element, or do not overlap
  for (; i + 1 < own_block.count; i += 2) UpdateNarrowAt<true, kScales>(own, own_block, i);
  if (i < own_block.count) UpdateNarrowAt<false, kScales>(own, own_block, i);
}

template <typename Op, typename Narrow>
[[gnu::always_inline]] inline void Loop(const Op& op, const NarrowBlock<Narrow>& block) {
  block.gradient_scale == 1.0F ? LoopOverPairs<false>(op, block) : LoopOverPairs<true>(op, block);
}

// Runs the loop of the op in the variant.
template <typename Block, std::size_t... kIndices>
[[gnu::always_inline]] inline void Run(const FlatOp& op, const Block& block,
                                       std::index_sequence<kIndices...>) {
  const auto try_op = [&](const auto* each) __attribute__((always_inline)) {
    if (each != nullptr) Loop(*each, block);
  };
  (try_op(std::get_if<kIndices>(&op)), ...);
}

template <typename Narrow>
[[gnu::always_inline]] inline void WidenAll(const Narrow* __restrict narrow, std::int64_t count,
                                            float* __restrict wide) {
  for (std::int64_t i = 0; i < count; ++i) wide[i] = Widen(narrow[i]);
}

template <typename Narrow>
[[gnu::always_inline]] inline void RoundAll(const float* __restrict wide, std::int64_t count,
                                            Narrow* __restrict narrow) {
  for (std::int64_t i = 0; i < count; ++i) narrow[i] = RoundTo<Narrow>(wide[i]);
}

template <typename Narrow>
[[gnu::always_inline]] inline void ScaleAll(const float* __restrict from, std::int64_t count,
                                            float scale, float* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = Widen(RoundTo<Narrow>(Widen(RoundTo<Narrow>(from[i])) * scale));
  }
}

// Rounds to a 16-bit type, scales, and rounds again.
DS_SIMD_CLONES void ScaleInBFloat16(const float* from, std::int64_t count, float scale, float* to) {
  ScaleAll<BFloat16>(from, count, scale, to);
}
DS_SIMD_CLONES void ScaleInFloat16(const float* from, std::int64_t count, float scale, float* to) {
  ScaleAll<Float16>(from, count, scale, to);
}

constexpr auto kOps = std::make_index_sequence<std::variant_size_v<FlatOp>>();

DS_SIMD_CLONES void UpdateNarrow(const FlatOp& op, const NarrowBlock<BFloat16>& block) {
  Run(op, block, kOps);
}
DS_SIMD_CLONES void UpdateNarrow(const FlatOp& op, const NarrowBlock<Float16>& block) {
  Run(op, block, kOps);
}

bool AreAll(const FlatViews& views, FlatType type) {
  const auto is = [&](const FlatView& view) { return view.data == nullptr || view.type == type; };
  return views.published.data == nullptr && is(views.parameter) && is(views.gradient) &&
         is(views.state[0]) && is(views.state[1]);
}

template <typename Narrow>
void UpdateAllNarrow(const FlatOp& op, const FlatViews& views) {
  const auto at = [](const FlatView& view, std::int64_t start) {
    return view.data == nullptr ? nullptr : static_cast<Narrow*>(view.data) + start;
  };
  const std::int64_t blocks = (views.count + kBlock - 1) / kBlock;
  device::ParallelFor(0, blocks, 16, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t start = begin * kBlock;
    UpdateNarrow(
        op, NarrowBlock<Narrow>{.count = std::min(end * kBlock, views.count) - start,
                                .parameter = at(views.parameter, start),
                                .gradient = at(views.gradient, start),
                                .state = {at(views.state[0], start), at(views.state[1], start)},
                                .gradient_scale = views.narrow_scale});
  });
}

// One thread's buffers for upcast elements.
struct UpcastBuffers {
  using Buffer = std::array<float, kBlock>;
  Buffer parameter, gradient, scaled_gradient, state[2];
};

// Returns elements of a view in fp32: in place, or upcast into `buffer`.
float* Widened(const FlatView& view, const FlatBlock& block, UpcastBuffers::Buffer& buffer) {
  if (view.data == nullptr) return nullptr;
  switch (view.type) {
    case FlatType::kFloat:
      return static_cast<float*>(view.data) + block.start;
    case FlatType::kBFloat16:
      Widen(static_cast<const BFloat16*>(view.data) + block.start, block.count, buffer.data());
      break;
    case FlatType::kHalf:
      Widen(static_cast<const Float16*>(view.data) + block.start, block.count, buffer.data());
      break;
  }
  return buffer.data();
}

// Returns gradients in fp32. Those of 16-bit parameters are rounded and scaled in the parameters'
// type.
const float* WidenedGradient(const FlatViews& views, const FlatBlock& block,
                             UpcastBuffers& buffers) {
  const float* const gradient = Widened(views.gradient, block, buffers.gradient);
  if (gradient == nullptr || views.parameter.type == FlatType::kFloat) return gradient;
  const auto scale =
      views.parameter.type == FlatType::kBFloat16 ? &ScaleInBFloat16 : &ScaleInFloat16;
  scale(gradient, block.count, views.narrow_scale, buffers.scaled_gradient.data());
  return buffers.scaled_gradient.data();
}

// Writes elements to a view, unless they are already in it.
void Store(const float* wide, const FlatBlock& block, const FlatView& view) {
  if (view.data == nullptr) return;
  switch (view.type) {
    case FlatType::kFloat:
      if (float* const to = static_cast<float*>(view.data) + block.start; to != wide) {
        std::copy_n(wide, block.count, to);
      }
      return;
    case FlatType::kBFloat16:
      return Round(wide, block.count, static_cast<BFloat16*>(view.data) + block.start);
    case FlatType::kHalf:
      return Round(wide, block.count, static_cast<Float16*>(view.data) + block.start);
  }
}

}  // namespace

void ForEachBlock(const FlatViews& views, c10::function_ref<void(const FlatBlock&)> update) {
  const auto run = [&](std::int64_t start) {
    UpcastBuffers buffers;
    FlatBlock block{.start = start, .count = std::min(kBlock, views.count - start)};
    block.parameter = Widened(views.parameter, block, buffers.parameter);
    block.gradient = WidenedGradient(views, block, buffers);
    for (std::size_t i = 0; i < block.state.size(); ++i) {
      block.state[i] = Widened(views.state[i], block, buffers.state[i]);
    }
    update(block);
    Store(block.parameter, block, views.parameter);
    for (std::size_t i = 0; i < block.state.size(); ++i) {
      Store(block.state[i], block, views.state[i]);
    }
    Store(block.parameter, block, views.published);
  };
  const std::int64_t blocks = (views.count + kBlock - 1) / kBlock;
  device::ParallelFor(0, blocks, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) run(i * kBlock);
  });
}

DS_SIMD_CLONES void UpdateBlock(const FlatOp& op, const FlatBlock& block) { Run(op, block, kOps); }

namespace {

// Applies a decision in host memory, which is known here, and updates.
void UpdateAsDecided(FlatOp op, FlatViews views) {
  const bool applies =
      std::visit([&](auto& each) { return TakeDecision(views, &each, &views.narrow_scale); }, op);
  views.decision = nullptr;
  if (applies) UpdateOnCpu(op, views);
}

}  // namespace

void UpdateOnCpu(const FlatOp& op, const FlatViews& views) {
  if (views.decision != nullptr) return UpdateAsDecided(op, views);
  if (AreAll(views, FlatType::kBFloat16)) return UpdateAllNarrow<BFloat16>(op, views);
  if (AreAll(views, FlatType::kHalf)) return UpdateAllNarrow<Float16>(op, views);
  ForEachBlock(views, [&](const FlatBlock& block) { UpdateBlock(op, block); });
}

DS_SIMD_CLONES void Widen(const BFloat16* narrow, std::int64_t count, float* wide) {
  WidenAll(narrow, count, wide);
}

DS_SIMD_CLONES void Widen(const Float16* narrow, std::int64_t count, float* wide) {
  WidenAll(narrow, count, wide);
}

DS_SIMD_CLONES void Round(const float* wide, std::int64_t count, BFloat16* narrow) {
  RoundAll(wide, count, narrow);
}

DS_SIMD_CLONES void Round(const float* wide, std::int64_t count, Float16* narrow) {
  RoundAll(wide, count, narrow);
}

}  // namespace ds::optim
