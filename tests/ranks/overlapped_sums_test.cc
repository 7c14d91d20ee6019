// Tensor ranks' sums of gradients go on while the gradients of weights are computed, and change no
// bit (tensor_parallel.tp_overlap_comm).

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/autograd/put_gradient.h"
#include "runtime/models/kernels/matmul.h"
#include "tests/ranks/decoder_run.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using models::AffineWeights;
using models::WeightLayout;

at::Tensor MakeValues(at::IntArrayRef shape, std::int64_t first) {
  const std::int64_t count = c10::multiply_integers(shape);
  return (at::arange(first, first + count, at::kFloat) * 0.37).sin().view(shape);
}

// The weights of a rank, some with a bias, in both layouts; one is frozen.
std::vector<AffineWeights> MakeWeights(int rank, at::ScalarType dtype) {
  const auto make = [&](at::IntArrayRef shape, std::int64_t first) {
    return MakeValues(shape, first + 1000 * rank).to(dtype).set_requires_grad(true);
  };
  std::vector<AffineWeights> weights{
      {.weight = make({6, 8}, 1), .bias = make({6}, 60)},
      {.weight = make({8, 4}, 100), .bias = make({4}, 140), .layout = WeightLayout::kInOut},
      {.weight = make({6, 8}, 200), .bias = {}}};
  weights.back().weight.set_requires_grad(false);
  return weights;
}

struct Passed {
  std::vector<at::Tensor> results, gradients;
};

template <typename Multiply>
Passed PassThrough(const std::vector<AffineWeights>& weights, at::ScalarType dtype,
                   const Multiply& multiply) {
  const at::Tensor x = MakeValues({2, 3, 8}, 7).to(dtype).set_requires_grad(true);
  const std::vector<at::Tensor> results = multiply(x);
  at::Tensor loss;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const at::Tensor own = (results[i] * MakeValues(results[i].sizes(), 11).to(dtype)).sum();
    loss = loss.defined() ? loss + own : own;
  }
  loss.backward();
  Passed passed{results, {x.grad()}};
  for (const AffineWeights& each : weights) {
    for (const at::Tensor& parameter : {each.weight, each.bias}) {
      if (!parameter.defined() || !parameter.requires_grad()) continue;
      passed.gradients.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
  }
  return passed;
}

TEST(OverlappedSums, AreTheBitsOfSharedInputs) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const tensor_parallel::TensorGroup users(world, /*sums_overlap=*/true);
      const auto weights = MakeWeights(world.rank(), dtype);
      const Passed expected = PassThrough(weights, dtype, [&](const at::Tensor& x) {
        const at::Tensor shared = users.Share(x, "input");
        std::vector<at::Tensor> results;
        for (const auto& [weight, bias, layout] : weights) {
          results.push_back(models::Affine(shared, weight, bias, layout));
        }
        return results;
      });
      const Passed ours = PassThrough(weights, dtype, [&](const at::Tensor& x) {
        return models::SharedAffine(x, weights, users, "input");
      });
      ASSERT_EQ(ours.gradients.size(), 5U);
      ASSERT_EQ(expected.gradients.size(), 5U);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(ours.results[i].equal(expected.results[i]));
      for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_TRUE(ours.gradients[i].equal(expected.gradients[i])) << i;
      }
    });
  }
}

// Leaves gradients where autograd puts them, and makes PutGradient wait until the peer's pass has
// ended.
class BlockingSink : public gradients::GradientSink {
 public:
  BlockingSink(const at::Tensor& parameter, std::shared_future<void> end)
      : GradientSink(parameter), end_(std::move(end)) {}
  void Take(const at::Tensor& gradient) override { parameter().mutable_grad() = gradient; }
  bool Put(const gradients::WriteGradient&, gradients::DestinationDtype) override {
    EXPECT_EQ(end_.wait_for(std::chrono::minutes(5)), std::future_status::ready)
        << "the sum has not begun when gradients of weights are computed";
    return false;
  }

 private:
  std::shared_future<void> end_;
};

// The peer's pass ends with a sum that this rank has a part of.
TEST(OverlappedSums, EndWhileTheGradientsOfWeightsAreComputed) {
  std::promise<void> peer_ended;
  const std::shared_future<void> end = peer_ended.get_future().share();
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const tensor_parallel::TensorGroup users(world, /*sums_overlap=*/true);
    const auto weights = MakeWeights(world.rank(), at::kFloat);
    std::optional<gradients::AttachedSink> sink;
    if (world.rank() == 0) sink.emplace(std::make_unique<BlockingSink>(weights[0].weight, end));
    PassThrough(weights, at::kFloat, [&](const at::Tensor& x) {
      return models::SharedAffine(x, weights, users, "input");
    });
    if (world.rank() == 1) peer_ended.set_value();
  });
}

// The graph's functions that begin a sum and multiply under it.
std::size_t CountOverlapping(const at::Tensor& loss) {
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> left{loss.grad_fn().get()};
  std::size_t count = 0;
  while (!left.empty()) {
    torch::autograd::Node* const node = left.back();
    left.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (node->name().find("SharedAffineFunction") != std::string::npos) ++count;
    for (const auto& edge : node->next_edges()) left.push_back(edge.function.get());
  }
  return count;
}

TEST(OverlappedSums, AreThoseOfEveryLayerWhereTheConfigSaysSo) {
  const auto count = [](DecoderRun run) {
    std::size_t functions = 0;
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const auto engine = MakeDecoderEngine(run, world);
      const at::Tensor tokens = at::arange(12, at::kLong).view({1, 12});
      const at::Tensor loss =
          engine->forward(Bundle{.batch = {{"tokens", tokens}, {"labels", tokens}}});
      if (world.rank() == 0) functions = CountOverlapping(loss);
      engine->backward(loss);
    });
    return functions;
  };
  const DecoderRun blocking{.model = kLlamaDecoder, .tensor = 2};
  DecoderRun overlapping = blocking;
  overlapping.tensor_sums_overlap = true;
  EXPECT_EQ(count(blocking), 0U);
  EXPECT_EQ(count(overlapping), 2U * 2) << "of two layers' attention and feed-forward part";
  overlapping.lora_rank = 2;
  EXPECT_EQ(count(overlapping), 0U) << "an adapter reads the input, too";
}

TEST(OverlappedSums, DecodersTrainToTheSameBits) {
  using Kind = config::RecomputeChoice::Kind;
  const DecoderRun runs[] = {
      {.model = kDroppingDecoder, .tensor = 2, .stage = 3},
      {.model = kLlamaDecoder, .tensor = 2, .stage = 1, .accumulation = 2, .bf16 = true},
      {.model = kLlamaDecoder, .tensor = 4, .recompute = {.kind = Kind::kBlocks}},
      {.model = kMixtralDecoder, .tensor = 2, .stage = 2},
      {.model = kLlamaDecoder, .tensor = 2, .mlp_tiles = 3, .lora_rank = 2},
      {.model = kLlamaDecoder,
       .tensor = 2,
       .pipeline = 2,
       .schedule = pipeline::ScheduleKind::kZeroBubbleH1,
       .accumulation = 4}};
  for (DecoderRun run : runs) {
    SCOPED_TRACE(
        fmt::format("{} on tp {} pp {}, ZeRO {}", run.model, run.tensor, run.pipeline, run.stage));
    const int ranks = 4;
    const DecoderOutcome blocking = RunDecoder(run, ranks, kTrainedSteps);
    run.tensor_sums_overlap = true;
    const DecoderOutcome ours = RunDecoder(run, ranks, kTrainedSteps);
    ExpectSameBits(blocking, ours);
  }
}

}  // namespace
}  // namespace ds::tests
