// A run of a 1-bit optimizer that is saved behind its warm-up goes on: with the same bits on one
// rank, where nothing is compressed away; on two ranks without the errors of the compression.

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "runtime/base/isa_probe.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

const config::OptimizerAlgorithm kAlgorithms[] = {
    config::OneBitAdamConfig{.beta2 = 0.95, .freeze_step = 8},
    config::OneBitLambConfig{.beta2 = 0.95, .freeze_step = 8},
    config::ZeroOneAdamConfig{.beta2 = 0.95, .var_freeze_step = 8}};

std::unique_ptr<Engine> MakeEngine(const TinyRun& run, comm::Communicator& world) {
  config::DsConfig config = TinyConfig(run);
  config.optimizer.lr = 0.01;
  return Engine::create(MakeTinyModel({}, run.dtype()), config, {.world = &world}).value();
}

// As a checkpoint would: tensors by name, then the rest.
void CopyState(Engine& from, Engine& to) {
  std::vector<checkpoint::TensorShard> source, target;
  from.state().AddShards(&source);
  to.state().AddShards(&target);
  ASSERT_EQ(source.size(), target.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    ASSERT_EQ(source[i].name, target[i].name);
    const at::Tensor values = checkpoint::ReadAll(*source[i].source).value();
    EXPECT_TRUE(checkpoint::WriteAll(values, *target[i].source).ok());
  }
  const auto state = nlohmann::json::parse(from.state().State().dump());
  EXPECT_TRUE(to.state().CheckState(state).ok());
  EXPECT_TRUE(to.state().LoadState(state).ok());
}

class OneBitResume
    : public ::testing::TestWithParam<std::tuple<config::OptimizerAlgorithm, Precision>> {};

TEST_P(OneBitResume, ResumesAfterTheWarmUp) {
  // Before the process's first bf16 product.
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  for (const int world_size : {1, 2}) {
    testing::RunRanks(world_size, [&](comm::Communicator& world) {
      const TinyRun run{.precision = std::get<Precision>(GetParam()),
                        .optimizer = std::get<0>(GetParam())};
      const auto straight = MakeEngine(run, world);
      const double first = TrainTiny(*straight, run, 1)[0].loss;
      TrainTiny(*straight, run, 11);
      const auto resumed = MakeEngine(run, world);
      CopyState(*straight, *resumed);
      const auto expected = TrainTiny(*straight, run, 8);
      const auto results = TrainTiny(*resumed, run, 8);
      for (std::size_t i = 0; i < results.size() && world_size == 1; ++i) {
        EXPECT_EQ(results[i].loss, expected[i].loss) << i;
      }
      EXPECT_LT(results.back().loss, first);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, OneBitResume,
                         ::testing::Combine(::testing::ValuesIn(kAlgorithms),
                                            ::testing::Values(Precision::kFp32, Precision::kBf16)));

}  // namespace
}  // namespace ds::tests
