// Parameters are whole for a while on every rank, and what one rank makes of them stays.

#include "runtime/engine/gathered_parameters.h"

#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/device/isa_probe.h"
#include "runtime/engine/tensor_access.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::HasSubstr;
using Values = std::map<std::string, at::Tensor>;

const std::vector<std::string> kNames = {"table", "layer.1.w", "layer.1.scale"};

// An engine that has trained a step, and the model's parameters by name.
struct Trainer {
  Trainer(const TinyRun& run, comm::Communicator& world) : run(run) {
    [[maybe_unused]] static const device::IsaReport isa = device::ProbeAndCapIsa();
    const auto model = MakeTinyModel(run.shape, run.dtype());
    for (const auto& block : model->blocks()) {
      for (const auto& item : block->named_parameters()) {
        parameters[block->FullName(item.key())] = item.value();
      }
    }
    engine = Engine::create(model, TinyConfig(run), {.world = &world}).value();
    TrainTiny(*engine, run, 1);
  }

  Status With(std::optional<int> modifier_rank, const std::function<Status()>& body) {
    return WithGatheredParameters(*engine, kNames, modifier_rank, body);
  }
  // The fp32 weight; of a frozen one what there is.
  at::Tensor Weight(const std::string& name) {
    return TensorAccess(*engine).GetFullFp32Param(name).value().clone();
  }
  Values Weights() {
    Values values;
    for (const std::string& name : kNames) values[name] = Weight(name);
    return values;
  }

  TinyRun run;
  std::unique_ptr<Engine> engine;
  Values parameters;
};

void ExpectSameWeights(const Values& ours, const Values& expected) {
  for (const auto& [name, value] : expected) EXPECT_TRUE(ours.at(name).equal(value)) << name;
}

class Gathered : public ::testing::TestWithParam<std::tuple<int, Precision>> {
 protected:
  // Calls test(trainer, rank) on three ranks.
  template <typename Test>
  void OnRanks(const Test& test) const {
    const auto& [stage, precision] = GetParam();
    const TinyRun run{.stage = stage, .precision = precision};
    testing::RunRanks(3, [&](comm::Communicator& world) {
      Trainer trainer(run, world);
      test(trainer, world.rank());
    });
  }
};

TEST_P(Gathered, AreWholeOnEveryRank) {
  OnRanks([&](Trainer& trainer, int) {
    const Values weights = trainer.Weights();
    bool ran = false;
    EXPECT_TRUE(
        trainer
            .With({},
                  [&] {
                    ran = true;
                    for (const std::string& name : kNames) {
                      const at::Tensor& parameter = trainer.parameters[name];
                      EXPECT_TRUE(parameter.equal(weights.at(name).to(parameter.scalar_type())))
                          << name;
                    }
                    if (trainer.run.stage == 3) {
                      EXPECT_EQ(trainer.parameters["layer.0.w"].storage().nbytes(), 0U)
                          << "nobody asked for it";
                    }
                    return OkStatus();
                  })
            .ok());
    EXPECT_TRUE(ran);
    if (trainer.run.stage == 3) {
      EXPECT_EQ(trainer.parameters["table"].storage().nbytes(), 0U);
    }
    ExpectSameWeights(trainer.Weights(), weights);
  });
}

// Frozen ones, too. A master keeps what its 16-bit value does not show where that has not changed.
TEST_P(Gathered, TakeWhatTheModifyingRankWrites) {
  OnRanks([&](Trainer& trainer, int rank) {
    Values expected = trainer.Weights();
    expected["layer.1.w"][2][3] = 0.75F;
    expected["layer.1.scale"].fill_(0.5F);
    EXPECT_TRUE(trainer
                    .With(1,
                          [&] {
                            trainer.parameters["layer.1.w"][2][3] = rank == 1 ? 0.75 : 100.0;
                            trainer.parameters["layer.1.scale"].fill_(rank == 1 ? 0.5 : 100.0);
                            if (rank == 2) trainer.parameters["table"].zero_();
                            return OkStatus();
                          })
                    .ok());
    ExpectSameWeights(trainer.Weights(), expected);
    const auto exported = ExportAll(*trainer.engine);
    if (rank == 0) {
      EXPECT_EQ(exported.at("layer.1.w")[2][3].item<float>(), 0.75F);
      EXPECT_TRUE(exported.at("layer.1.scale").eq(0.5).all().item<bool>());
    }
    TrainTiny(*trainer.engine, trainer.run, 1);
    EXPECT_NE(trainer.Weight("layer.1.w")[2][3].item<float>(), 0.75F) << "it goes on training";
    EXPECT_TRUE(trainer.Weight("layer.1.scale").eq(0.5).all().item<bool>());
  });
}

TEST_P(Gathered, AreAsBeforeWithoutAModifyingRankOrBehindAnError) {
  OnRanks([&](Trainer& trainer, int rank) {
    const Values weights = trainer.Weights();
    const auto spoil = [&](Status status) {
      return [&, status = std::move(status)] {
        for (const std::string& name : kNames) trainer.parameters[name].fill_(rank + 1);
        return status;
      };
    };
    EXPECT_TRUE(trainer.With({}, spoil(OkStatus())).ok());
    ExpectSameWeights(trainer.Weights(), weights);
    const Status failed =
        trainer.With(0, spoil(rank == 1 ? InvalidArgumentError("not on this rank") : OkStatus()));
    EXPECT_THAT(failed.message(), HasSubstr("not on this rank"));
    ExpectSameWeights(trainer.Weights(), weights);
    const double loss = TrainTiny(*trainer.engine, trainer.run, 1).back().loss;
    EXPECT_TRUE(std::isfinite(loss));
    Trainer untouched(trainer.run, trainer.engine->world());
    EXPECT_EQ(TrainTiny(*untouched.engine, untouched.run, 1).back().loss, loss);
  });
}

TEST_P(Gathered, AreRefusedByName) {
  OnRanks([&](Trainer& trainer, int) {
    const auto never = [] {
      ADD_FAILURE() << "the body ran";
      return OkStatus();
    };
    EXPECT_THAT(WithGatheredParameters(*trainer.engine, {"table", "layer.9.w"}, 0, never).message(),
                HasSubstr("no parameter layer.9.w"));
    EXPECT_THAT(trainer.With(3, never).message(), HasSubstr("no rank 3"));
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, Gathered,
                         ::testing::Combine(::testing::Range(0, 4),
                                            ::testing::Values(Precision::kFp32, Precision::kBf16)),
                         [](const auto& info) {
                           return "stage" + std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == Precision::kFp32 ? "_fp32" : "_bf16");
                         });

}  // namespace
}  // namespace ds::tests
