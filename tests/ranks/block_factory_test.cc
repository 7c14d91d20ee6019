// Blocks that a factory makes: their values are those of the second making on rank 0, and no rank
// has more of them in memory than its shards and two blocks.

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "runtime/comm/communicator.h"
#include "runtime/device/counting_allocator.h"
#include "runtime/models/layers/tiled_linear.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kBlockWidth = 256;
constexpr std::int64_t kBlockBytes = kBlockWidth * (kBlockWidth + 1) * 4;
constexpr int kBlocks = 12;

// A user's own module, with values as soon as it is made.
class LinearBlock : public Block {
 public:
  explicit LinearBlock(int index) : Block("layer." + std::to_string(index)) {
    linear = register_module("linear", torch::nn::Linear(kBlockWidth, kBlockWidth));
  }
  Bundle forward(Bundle bundle) override {
    const at::Tensor& in = bundle.hidden.defined() ? bundle.hidden : bundle.tensor("input");
    bundle.hidden = linear->forward(in);
    bundle.loss = at::mse_loss(bundle.hidden, at::ones_like(bundle.hidden));
    return bundle;
  }

  torch::nn::Linear linear = nullptr;
};

config::DsConfig PlainConfig(int stage) {
  // Without state of the optimizer, which comes behind the parameters.
  return TinyConfig({.stage = stage, .optimizer = config::SgdConfig{}});
}

class BlockFactories : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { allocator_ = &device::CountingAllocator::Install(); }
  static device::CountingAllocator* allocator_;

  // The most that all ranks together have held while they made the model and the engine.
  static std::int64_t FindPeak(int ranks, const std::function<void(BlockList&, int)>& add) {
    std::int64_t peak = 0;
    testing::RunRanks(ranks, [&](comm::Communicator& world) {
      world.Barrier();
      const std::int64_t before = allocator_->BytesOut();
      world.Barrier();
      if (world.rank() == 0) allocator_->ResetPeak();
      world.Barrier();
      auto model = std::make_shared<BlockList>();
      for (int i = 0; i < kBlocks; ++i) add(*model, i);
      const auto engine = Engine::create(model, PlainConfig(3), {.world = &world}).value();
      world.Barrier();
      if (world.rank() == 0) peak = allocator_->PeakBytesOut() - before;
      world.Barrier();
    });
    return peak;
  }
};

device::CountingAllocator* BlockFactories::allocator_ = nullptr;

TEST_F(BlockFactories, TakeTheMemoryOfShardsAndTwoBlocks) {
  constexpr int kRanks = 2;
  const std::int64_t shards = kBlocks * kBlockBytes;  // of all ranks together
  const std::int64_t bound = shards + kRanks * 2 * kBlockBytes;
  const std::int64_t made = FindPeak(kRanks, [](BlockList& model, int i) {
    model.Add([i] { return std::make_shared<LinearBlock>(i); });
  });
  EXPECT_LE(made, bound + bound / 50);
  const std::int64_t plain = FindPeak(
      kRanks, [](BlockList& model, int i) { model.Add(std::make_shared<LinearBlock>(i)); });
  EXPECT_GT(plain, kRanks * kBlocks * kBlockBytes) << "every rank has had all of it";
}

// The mean of squares of what is there.
class SquaresLoss : public Block {
 public:
  SquaresLoss() : Block("loss") {}
  Bundle forward(Bundle bundle) override {
    bundle.loss = bundle.hidden.square().mean();
    return bundle;
  }
};

// The most that two ranks of stage 3 hold in a step beyond what they hold between steps.
std::int64_t FindPeakOfStep(device::CountingAllocator& allocator, std::int64_t splits) {
  std::int64_t peak = 0;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    model->Add(std::make_shared<LinearBlock>(0));
    EXPECT_TRUE(models::AddTiledLinear(*model, {.name = "wide",
                                                .in = kBlockWidth,
                                                .out = 16 * kBlockWidth,
                                                .in_splits = splits,
                                                .out_splits = splits})
                    .ok());
    model->Add(std::make_shared<SquaresLoss>());
    const auto engine = Engine::create(model, PlainConfig(3), {.world = &world}).value();
    for (int step = 0; step < 2; ++step) {
      world.Barrier();
      const std::int64_t before = allocator.BytesOut();
      world.Barrier();
      if (world.rank() == 0) allocator.ResetPeak();
      world.Barrier();
      engine->backward(engine->forward({.batch = {{"input", at::ones({1, kBlockWidth})}}}));
      EXPECT_TRUE(engine->step().ok());
      world.Barrier();
      if (world.rank() == 0) peak = allocator.PeakBytesOut() - before;
      world.Barrier();
    }
  });
  return peak;
}

// Stage 3 has one tile, and one tile's gradient, where it would have the matrix.
TEST_F(BlockFactories, OfTilesTakeTheMemoryOfOneTile) {
  constexpr std::int64_t kMatrixBytes = 16 * kBlockWidth * kBlockWidth * 4;
  const std::int64_t shards = kMatrixBytes;  // of gradients, of both ranks, from pass to update
  const std::int64_t full = FindPeakOfStep(*allocator_, 1), tiled = FindPeakOfStep(*allocator_, 4);
  EXPECT_LE(tiled, shards + kMatrixBytes / 2);
  EXPECT_GT(full, tiled + kMatrixBytes / 2);
}

TEST(BlockFactory, IsAskedAgainForTheValues) {
  for (int stage = 0; stage <= 3; ++stage) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      int made = 0;
      auto model = std::make_shared<BlockList>();
      model->Add([&made, rank = world.rank()] {
        auto block = std::make_shared<LinearBlock>(0);
        const c10::NoGradGuard no_grad;
        block->linear->weight.fill_(++made + 10 * rank);
        block->linear->bias.requires_grad_(false).fill_(0.5);
        return block;
      });
      EXPECT_EQ(model->block(0).parameters()[0].storage().nbytes(), 0U);
      EXPECT_EQ(model->block(0).parameters()[0].sizes(),
                (at::IntArrayRef{kBlockWidth, kBlockWidth}));
      const auto engine = Engine::create(model, PlainConfig(stage), {.world = &world}).value();
      EXPECT_EQ(made, 2);
      const auto values = ExportAll(*engine);
      if (world.rank() == 0) {
        EXPECT_TRUE(values.at("layer.0.linear.weight").eq(2.0).all().item<bool>());
        EXPECT_TRUE(values.at("layer.0.linear.bias").eq(0.5).all().item<bool>());
      }
      EXPECT_FALSE(model->block(0).parameters()[1].requires_grad());
      engine->backward(engine->forward({.batch = {{"input", at::ones({2, kBlockWidth})}}}));
      EXPECT_TRUE(engine->step().ok());
    });
  }
}

// `make_factory` is called by every rank.
Status CreateOf(const std::function<models::BlockFactory()>& make_factory) {
  Status status;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    auto model = std::make_shared<BlockList>();
    model->Add(make_factory());
    const Status created = Engine::create(model, PlainConfig(3), {.world = &world}).status();
    if (world.rank() == 0) status = created;
  });
  return status;
}

TEST(BlockFactory, MustMakeTheSameBlockAgain) {
  const auto counting = [] {
    return [made = 0]() mutable { return std::make_shared<LinearBlock>(made++); };
  };
  EXPECT_THAT(CreateOf(counting).message(),
              HasSubstr("made a second time, the block has no layer.0.linear.weight"));
}

TEST(BlockFactory, MustMakeANewBlock) {
  const auto keeping = [] { return [block = std::make_shared<LinearBlock>(0)] { return block; }; };
  EXPECT_THAT(CreateOf(keeping).message(), HasSubstr("its factory has given the same block twice"));
}

TEST(BlockFactory, RefusesBlocksWithParametersThatShareMemory) {
  class Tied : public Block {
   public:
    Tied() : Block("tied") {
      const at::Tensor both = register_parameter("first", at::full({3}, 1.0));
      register_parameter("second", both.detach());
    }
    Bundle forward(Bundle bundle) override { return bundle; }
  };
  EXPECT_THAT(CreateOf([] { return [] { return std::make_shared<Tied>(); }; }).message(),
              HasSubstr("share memory"));
}

TEST(BlockFactory, OfABlockWithoutValuesLeavesThemToTheSeed) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyShape shape;
    const auto values_of = [&](bool by_factory) {
      const auto tiny = MakeTinyModel(shape, at::kFloat);
      auto model = std::make_shared<BlockList>();
      for (int i = 0; i < tiny->size(); ++i) {
        const auto make = [shape, i] {
          return MakeTinyModel(shape, at::kFloat)->blocks()[static_cast<std::size_t>(i)];
        };
        by_factory ? model->Add(make, tiny->also_reads(i))
                   : model->Add(make(), tiny->also_reads(i));
      }
      const auto engine = Engine::create(model, PlainConfig(3), {.world = &world}).value();
      return ExportAll(*engine);
    };
    const auto plain = values_of(false), made = values_of(true);
    for (const auto& [name, value] : plain) EXPECT_TRUE(made.at(name).equal(value)) << name;
  });
}

}  // namespace
}  // namespace ds::tests
