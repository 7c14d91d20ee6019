// Lists in scheduler.params: each parameter group follows its own schedule.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/optim/groups/parameter_groups.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::HasSubstr;

// The matrices are the first group, biases and gains the second.
StatusOr<std::unique_ptr<Engine>> MakeEngine(const TinyRun& run, comm::Communicator& world,
                                             const config::Schedule& schedule,
                                             const std::vector<config::Schedule>& groups) {
  config::DsConfig config = TinyConfig(run);
  config.scheduler = schedule;
  config.group_schedules = groups;
  return Engine::create(MakeTinyModel(run.shape, run.dtype()), config,
                        {.world = &world, .parameter_group = optim::NoDecayOnNormsAndBiases});
}

TEST(GroupSchedules, MoveTheirOwnGroupOnly) {
  for (const int stage : {0, 1, 2, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage};
      const config::LrRangeTest still{.min_lr = 0.0}, moving{.min_lr = 0.02};
      const auto engine = MakeEngine(run, world, still, {still, moving}).value();
      const auto before = ExportAll(*engine);
      const auto steps = TrainTiny(*engine, run, 2);
      EXPECT_EQ(steps[1].lr, 0.0) << "the first group's, as in DeepSpeed";
      const auto after = ExportAll(*engine);
      for (const auto& [name, value] : before) {
        // The frozen ones stay, and those without a gradient.
        const bool moves = value.dim() < 2 && !name.ends_with("scale") && !name.ends_with("unused");
        EXPECT_EQ(value.equal(after.at(name)), !moves) << name;
      }
    });
  }
}

// With a momentum that moves. Not so under Muon, whose other group has a rate of its own, which a
// list replaces.
TEST(GroupSchedules, OfEqualNumbersAreOneSchedule) {
  const config::OneCycle cycle{
      .min_lr = 0.001, .max_lr = 0.03, .first_step_size = 3, .second_step_size = 4};
  const config::OptimizerAlgorithm algorithms[] = {
      config::AdamConfig{},       config::SgdConfig{.momentum = 0.95},
      config::AdagradConfig{},    config::LionConfig{},
      config::LambConfig{},       config::OneBitAdamConfig{},
      config::OneBitLambConfig{}, config::ZeroOneAdamConfig{}};
  for (const config::OptimizerAlgorithm& algorithm : algorithms) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      TinyRun run{.optimizer = algorithm};
      const auto parameters_with = [&](const std::vector<config::Schedule>& groups) {
        const auto engine = MakeEngine(run, world, cycle, groups).value();
        TrainTiny(*engine, run, 6);
        return ExportAll(*engine);
      };
      const auto one = parameters_with({});
      const auto two = parameters_with({cycle, cycle});
      for (const auto& [name, value] : one) {
        EXPECT_TRUE(value.equal(two.at(name))) << name << " " << algorithm.index();
      }
    });
  }
}

// From equal rates or not: under a schedule that says them, AdamW's half runs at the schedule's.
TEST(GroupSchedules, SetTheRatesOfBothHalvesOfMuon) {
  for (const int stage : {0, 3}) {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage};
      const auto parameters_with = [&](double adam_lr, const config::Schedule& schedule) {
        config::DsConfig config = TinyConfig(run);
        config.optimizer = {.lr = 0.02, .algorithm = config::MuonConfig{.adam_lr = adam_lr}};
        config.scheduler = schedule;
        const auto engine =
            Engine::create(MakeTinyModel(run.shape, run.dtype()), config, {.world = &world})
                .value();
        TrainTiny(*engine, run, 3);
        return ExportAll(*engine);
      };
      const config::WarmupLr says_them{.max_lr = 0.02, .num_steps = 2, .total_num_steps = 9};
      const auto low = parameters_with(3e-4, says_them), high = parameters_with(0.02, says_them);
      for (const auto& [name, value] : low) EXPECT_TRUE(value.equal(high.at(name))) << name;
      const config::ConstantRate still;
      const auto own = parameters_with(3e-4, still), same = parameters_with(0.02, still);
      for (const auto& [name, value] : own) {
        if (!name.ends_with("gain")) continue;
        EXPECT_FALSE(value.equal(same.at(name))) << name << ", which AdamW updates";
      }
    });
  }
}

TEST(GroupSchedules, MustBeAsManyAsTheGroups) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    const config::WarmupLr warmup;
    const auto engine = MakeEngine({}, world, warmup, {warmup, warmup, warmup});
    EXPECT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(engine.status().message(),
                HasSubstr("lists of 3 numbers, one for each parameter group, and the model has 2: "
                          "that of table, "));
  });
}

}  // namespace
}  // namespace ds::tests
