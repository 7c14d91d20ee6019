// A feed-forward part on some of its rows at a time: the numbers of all at once, with the
// activations of one tile.

#include "runtime/models/kernels/tiled_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/device/counting_allocator.h"
#include "runtime/models/kernels/matmul.h"
#include "runtime/models/layers/activations.h"
#include "tests/support/summing_sink.h"

namespace ds::models {
namespace {

struct FeedForward {
  explicit FeedForward(std::int64_t width, std::int64_t wide)
      : up(at::randn({wide, width}).set_requires_grad(true)),
        down(at::randn({width, wide}).set_requires_grad(true)) {}
  at::Tensor operator()(const at::Tensor& rows, std::int64_t = 0) const {
    const at::Tensor wide = Affine(rows, up, {}, WeightLayout::kOutIn);
    return Affine(Activate(Activation::kGeluTanh, wide), down, {}, WeightLayout::kOutIn);
  }

  at::Tensor up, down;
};

double RelativeDistance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

// Value, and gradients of the input and both weights.
std::vector<at::Tensor> RunWithTiles(const FeedForward& part, const at::Tensor& x,
                                     std::int64_t count, std::vector<std::int64_t>* rows) {
  const at::Tensor leaf = x.clone().set_requires_grad(true);
  const at::Tensor y = RunTiled(
      leaf, {.count = count, .recompute = {.trains = true}},
      [&](const at::Tensor& tile, std::int64_t first) {
        EXPECT_TRUE(tile.reshape({-1, tile.size(-1)})[0].equal(x.view({-1, x.size(-1)})[first]));
        rows->push_back(tile.numel() / tile.size(-1));
        return part(tile);
      });
  y.square().sum().backward();
  const std::vector<at::Tensor> results = {y.detach(), leaf.grad(), part.up.grad().clone(),
                                           part.down.grad().clone()};
  for (const at::Tensor& weight : {part.up, part.down}) weight.mutable_grad().reset();
  return results;
}

TEST(TiledRows, MatchAllAtOnce) {
  const FeedForward part(12, 40);
  const at::Tensor x = at::randn({2, 7, 12});
  std::vector<std::int64_t> rows;
  const auto full = RunWithTiles(part, x, 1, &rows);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{14})) << "nothing is computed again";
  for (const std::int64_t count : {2, 4, 14, 100}) {
    rows.clear();
    const auto tiled = RunWithTiles(part, x, count, &rows);
    EXPECT_EQ(tiled[0].sizes(), x.sizes());
    for (std::size_t i = 0; i < full.size(); ++i) {
      EXPECT_LT(RelativeDistance(tiled[i], full[i]), 1e-6) << count << " tiles, result " << i;
    }
    if (count == 4) {
      EXPECT_EQ(rows, (std::vector<std::int64_t>{4, 4, 4, 2, 2, 4, 4, 4})) << "and again";
    }
  }
}

TEST(TiledRows, OfAFrozenInputTrainTheWeights) {
  const FeedForward part(12, 40);
  const at::Tensor x = at::randn({9, 12});
  part(x).sum().backward();
  const at::Tensor expected = part.up.grad().clone();
  part.up.mutable_grad().reset();
  RunTiled(x, {.count = 3, .recompute = {.trains = true}}, part).sum().backward();
  EXPECT_LT(RelativeDistance(part.up.grad(), expected), 1e-6);
}

// 2048 rows whose wide activations take 8 MiB and another 8 behind the function: with 8 tiles a
// pass never has more than the eighth, beside what it gives.
TEST(TiledRows, HoldOneTilesActivations) {
  device::CountingAllocator& memory = device::CountingAllocator::Install();
  constexpr std::int64_t kRows = 2048, kWidth = 64, kWide = 1024;
  constexpr std::int64_t kWideBytes = kRows * kWide * 4, kNarrowBytes = kRows * kWidth * 4;
  const FeedForward part(kWidth, kWide);
  const auto up = ds::testing::SummingSink::Attach(part.up);
  const auto down = ds::testing::SummingSink::Attach(part.down);
  const at::Tensor x = at::randn({kRows, kWidth}).set_requires_grad(true);
  for (const std::int64_t count : {1, 8}) {
    const std::int64_t before = memory.BytesOut();
    memory.ResetPeak();
    RunTiled(x, {.count = count, .recompute = {.trains = true}}, part).sum().backward();
    const std::int64_t peak = memory.PeakBytesOut() - before;
    x.mutable_grad().reset();
    // At once: both of the forward pass, and a gradient of one. In tiles: those of a tile.
    if (count == 1) {
      EXPECT_GE(peak, 3 * kWideBytes);
    } else {
      EXPECT_LE(peak, 4 * kWideBytes / 8 + 6 * kNarrowBytes + (1 << 20));
    }
  }
}

}  // namespace
}  // namespace ds::models
