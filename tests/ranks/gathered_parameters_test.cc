// Parameters are whole for a while on every rank, and what one rank makes of them stays.

#include "runtime/engine/gathered_parameters.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/isa_probe.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/zero/flat_parameters.h"
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
    [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
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

TEST_P(Gathered, AreUnshardedOnEveryRank) {
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
                      EXPECT_TRUE(zero::IsReleased(trainer.parameters["layer.0.w"]))
                          << "nobody asked for it";
                    }
                    return OkStatus();
                  })
            .ok());
    EXPECT_TRUE(ran);
    if (trainer.run.stage == 3) {
      EXPECT_TRUE(zero::IsReleased(trainer.parameters["table"]));
    }
    ExpectSameWeights(trainer.Weights(), weights);
  });
}

// Frozen ones, too. A master keeps what its 16-bit value does not show where that has not changed.
TEST_P(Gathered, TakeTheValuesOfTheModifyingRank) {
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

TEST_P(Gathered, AreUnchangedWithoutAModifyingRankOrAfterAnError) {
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

// Each of these would take the parameters away that the body looks at.
TEST_P(Gathered, RefuseCallsThatWouldReleaseThem) {
  OnRanks([&](Trainer& trainer, int rank) {
    Engine& engine = *trainer.engine;
    const auto refuses = [](const Status& status) {
      EXPECT_THAT(status.message(), HasSubstr("within GatheredParameters"));
    };
    const auto try_all = [&] {
      refuses(trainer.With({}, [] { return OkStatus(); }));
      refuses(trainer.With(0, [] { return OkStatus(); }));
      refuses(engine.ExportParameters([](const auto&, const auto&) { return OkStatus(); }));
      refuses(engine.step().status());
      refuses(engine.state().LoadState({}));
      refuses(engine.state().CheckSavable());
      refuses(TensorAccess(engine).GetFullFp32Param("table").status());
      refuses(TensorAccess(engine).SetFullFp32Param("table", at::Tensor()));
      refuses(DeepSpeedApi(engine).offload_states());
      refuses(DeepSpeedApi(engine).reload_states());
      refuses(DeepSpeedApi(engine).empty_partition_cache());
      EXPECT_THROW(engine.forward(TinyBatch(trainer.run, engine.world(), 0)), c10::Error);
      EXPECT_THROW(engine.backward(at::zeros({}, at::requires_grad())), c10::Error);
      EXPECT_EQ(engine.finished_steps(), 1);
      for (const std::string& name : kNames) {
        EXPECT_TRUE(zero::HasValues(trainer.parameters[name])) << name;
      }
      trainer.parameters["table"].fill_(rank == 0 ? 0.25 : 1.0);
      return OkStatus();
    };
    EXPECT_TRUE(trainer.With(0, try_all).ok());
    EXPECT_TRUE(trainer.Weight("table").eq(0.25).all().item<bool>());
    TrainTiny(engine, trainer.run, 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, Gathered,
                         ::testing::Combine(::testing::Range(0, 4),
                                            ::testing::Values(Precision::kFp32, Precision::kBf16)),
                         [](const auto& info) {
                           return "stage" + std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == Precision::kFp32 ? "_fp32" : "_bf16");
                         });

// Between two exchanges every rank of 0/1 Adam has parameters of its own, and takes back what it
// has moved them by: what was written meanwhile would stay different.
TEST(GatheredByZeroOneAdam, AreNotWrittenWhileRanksHaveMovedApart) {
  const TinyRun run{.optimizer = config::ZeroOneAdamConfig{
                        .var_freeze_step = 1, .local_step_scaler = 1, .local_step_clipper = 4}};
  testing::RunRanks(3, [&](comm::Communicator& world) {
    Trainer trainer(run, world);
    const auto fill = [&] {
      trainer.parameters["table"].fill_(0.5);
      return OkStatus();
    };
    // Taking moves back leaves what rounding has made of them.
    const auto are_alike = [&] {
      const at::Tensor mine = trainer.Weight("table"), of_zero = mine.clone();
      world.Broadcast(of_zero, 0);
      at::Tensor same = at::ones({1});
      same.fill_(mine.allclose(of_zero, 1e-5, 1e-6) ? 1.0 : 0.0);
      world.AllReduce(same, comm::ReduceOp::kMin);
      return same.item<float>() == 1.0F;
    };
    const auto is_refused = [](const Status& status) {
      EXPECT_THAT(status.message(), HasSubstr("ZeroOneAdam has updated each rank's parameters"));
    };
    TrainTiny(*trainer.engine, run, 3);  // updates 1 to 3 agree, 4 to 6 are local, 7 exchanges
    EXPECT_FALSE(are_alike());
    is_refused(trainer.With(0, fill));
    TensorAccess access(*trainer.engine);
    is_refused(access.SetFullFp32Param("table", at::full_like(trainer.parameters["table"], 0.5)));
    is_refused(access.SetLocalFp32Param("table", at::full({55}, 0.5)));
    EXPECT_TRUE(trainer.With({}, [] { return OkStatus(); }).ok()) << "to look at them";
    EXPECT_TRUE(
        WithGatheredParameters(*trainer.engine, {"layer.1.scale"}, 0, [] { return OkStatus(); })
            .ok())
        << "what is frozen does not move";
    TrainTiny(*trainer.engine, run, 3);
    EXPECT_TRUE(are_alike());
    EXPECT_TRUE(trainer.With(0, fill).ok());
    TrainTiny(*trainer.engine, run, 4);
    EXPECT_TRUE(are_alike()) << "the next exchange has brought them together";
  });
}

}  // namespace
}  // namespace ds::tests
