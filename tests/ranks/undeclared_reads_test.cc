// A block that reads another block's parameter without having said so is an error in words, in the
// first forward pass, whatever happens to be in memory.

#include "runtime/zero/undeclared_reads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::HasSubstr;

// hidden times its own weight, and times that of a block that it knows, if it knows one.
class ScaleBlock : public Block {
 public:
  explicit ScaleBlock(std::string prefix) : Block(std::move(prefix)) {
    register_parameter("bias", at::full({5}, 0.25));
    weight = register_parameter("weight", at::full({4}, 1.5));
  }
  Bundle forward(Bundle bundle) override {
    const at::Tensor& in = bundle.hidden.defined() ? bundle.hidden : bundle.tensor("input");
    bundle.hidden = in * weight;
    if (other) bundle.hidden = bundle.hidden.matmul(other->weight.unsqueeze(1)) * weight;
    bundle.loss = bundle.hidden.square().mean();
    return bundle;
  }

  at::Tensor weight;
  std::shared_ptr<ScaleBlock> other;
};

struct ReadCase {
  int reader = 2, read = 0;
  std::vector<int> declared = {};
  TinyRun run = {.stage = 3};
};

// What the first forward pass throws; "" when the model trains.
std::string TrainReader(const ReadCase& c) {
  std::string message;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    std::vector<std::shared_ptr<ScaleBlock>> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(std::make_shared<ScaleBlock>(std::to_string(i)));
    blocks[static_cast<std::size_t>(c.reader)]->other = blocks[static_cast<std::size_t>(c.read)];
    auto model = std::make_shared<BlockList>();
    for (int i = 0; i < 3; ++i) {
      model->Add(blocks[static_cast<std::size_t>(i)],
                 i == c.reader ? c.declared : std::vector<int>());
    }
    const auto engine = Engine::create(model, TinyConfig(c.run), {.world = &world}).value();
    std::string thrown;
    for (int step = 0; step < 2 && thrown.empty(); ++step) {
      try {
        const at::Tensor input = at::arange(8, at::kFloat).view({2, 4});
        engine->backward(engine->forward({.batch = {{"input", input}}}));
        EXPECT_TRUE(engine->step().ok());
      } catch (const c10::Error& error) {
        thrown = error.what_without_backtrace();
      }
    }
    if (world.rank() == 0) message = thrown;
  });
  return message;
}

TEST(UndeclaredReads, NameTheBlockAndTheParameter) {
  EXPECT_THAT(TrainReader({}),
              HasSubstr("block 2 (2) reads the parameter 0.weight of block 0 (0), which is not "
                        "gathered then: name that block in also_reads of this one"));
  EXPECT_THAT(TrainReader({.reader = 0, .read = 2}),
              HasSubstr("block 0 (0) reads the parameter 2.weight of block 2 (2), which is not "
                        "gathered then: give it to the first block that reads it"));
}

// All of the model stays from its first gather on, so that they would be found by chance.
TEST(UndeclaredReads, AreFoundDespiteKeptUnits) {
  TinyRun run{.stage = 3};
  run.zero.param_persistence_threshold = 1'000'000;
  EXPECT_THAT(TrainReader({.run = run}), HasSubstr("0.weight"));
}

TEST(UndeclaredReads, AreNoneWhereTheyAreDeclaredOrNothingIsSharded) {
  EXPECT_EQ(TrainReader({.declared = {0}}), "");
  EXPECT_EQ(TrainReader({.run = {.stage = 2}}), "");
}

}  // namespace
}  // namespace ds::tests
