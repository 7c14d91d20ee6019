// Gradients that are written into their bucket train as those that autograd brings there.

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/models/decoder/build_model.h"
#include "runtime/models/weights/model_config.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using Kind = config::RecomputeChoice::Kind;

constexpr char kTiedModel[] =
    R"({"model_type": "gpt2", "vocab_size": 50, "n_positions": 8, "n_embd": 16, "n_layer": 2,
        "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0})";
constexpr char kUntiedModel[] =
    R"({"model_type": "llama", "vocab_size": 50, "max_position_embeddings": 8, "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1})";

struct GradientCase {
  const char* model = kTiedModel;  // its config.json; GPT-2's head is tied to the embedding
  TinyRun run;
  config::RecomputeChoice recompute = {};
  bool two_forwards_first = false;
};

struct GradientRun {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
  int seen = 0;  // by hooks
};

Bundle MakeBatch(int rank, std::int64_t number) {
  const at::Tensor tokens =
      (at::arange(16, at::kLong).view({2, 8}) * (7 + rank) + number).remainder(10);
  return {.batch = {{"tokens", tokens}, {"labels", (tokens * 3).remainder(50)}}};
}

void RunStep(Engine& engine, const GradientCase& c, std::int64_t step) {
  std::vector<at::Tensor> losses;
  for (std::int64_t micro = 0; micro < c.run.accumulation; ++micro) {
    losses.push_back(engine.forward(MakeBatch(engine.world().rank(), step + 5 * micro)));
    if (!c.two_forwards_first) engine.backward(losses.back());
  }
  if (!c.two_forwards_first) return;
  for (const at::Tensor& loss : losses) engine.backward(loss);
}

// With `hooked`, a hook that looks at every gradient makes it go through autograd.
GradientRun Train(const GradientCase& c, bool hooked) {
  GradientRun outcome;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    auto model =
        models::BuildModel(models::ParseModelConfig(c.model, "config.json").value(), c.run.dtype());
    model->train(true);
    int seen = 0;
    model->block(1).parameters()[2].set_requires_grad(false);
    for (const auto& block : model->blocks()) {
      for (const at::Tensor& parameter : block->parameters()) {
        if (!hooked || !parameter.requires_grad()) continue;
        parameter.register_hook([&seen](const at::Tensor& gradient) {
          ++seen;
          return gradient;
        });
      }
    }
    config::DsConfig config = TinyConfig(c.run);
    config.optimizer.lr = 0.005;  // at ten times that, bf16's last bits decide the third step
    const auto engine =
        Engine::create(model, config, {.world = &world, .recompute = c.recompute}).value();
    std::vector<StepResult> steps;
    for (std::int64_t step = 0; step < 4; ++step) {
      RunStep(*engine, c, step);
      steps.push_back(engine->step().value());
    }
    const auto parameters = ExportAll(*engine);
    if (world.rank() == 0) outcome = {steps, parameters, seen};
  });
  return outcome;
}

// `tolerance` 0: the same bits.
void ExpectSameTraining(const GradientCase& c, double tolerance) {
  const GradientRun in_place = Train(c, /*hooked=*/false), ordinary = Train(c, /*hooked=*/true);
  EXPECT_EQ(in_place.seen, 0);
  EXPECT_GT(ordinary.seen, 0);
  ASSERT_EQ(in_place.steps.size(), ordinary.steps.size());
  for (std::size_t i = 0; i < ordinary.steps.size(); ++i) {
    EXPECT_NEAR(in_place.steps[i].loss, ordinary.steps[i].loss, tolerance) << i;
    EXPECT_NEAR(in_place.steps[i].grad_norm, ordinary.steps[i].grad_norm,
                tolerance * ordinary.steps[i].grad_norm)
        << i;
  }
  if (tolerance != 0.0) return;
  for (const auto& [name, value] : ordinary.parameters) {
    EXPECT_TRUE(in_place.parameters.at(name).equal(value)) << name;
  }
}

class GradientsInPlace : public ::testing::TestWithParam<std::tuple<int, Precision>> {
 protected:
  TinyRun Run(std::int64_t accumulation) const {
    const auto& [stage, precision] = GetParam();
    return {.stage = stage, .accumulation = accumulation, .precision = precision};
  }
  double rounding() const { return std::get<1>(GetParam()) == Precision::kFp32 ? 1e-6 : 5e-2; }
};

// In bf16 autograd rounds an embedding's row with each token that adds to it, in place it is
// rounded once.
TEST_P(GradientsInPlace, OfOneMicroBatchHaveTheSameBitsInFp32) {
  const double tolerance = std::get<1>(GetParam()) == Precision::kFp32 ? 0.0 : rounding();
  ExpectSameTraining({.model = kUntiedModel, .run = Run(1)}, tolerance);
  ExpectSameTraining({.model = kUntiedModel, .run = Run(1), .recompute = {.kind = Kind::kBlocks}},
                     tolerance);
}

// Their sums have another order: the embedding's rows are added to the head's gradient one by one.
TEST_P(GradientsInPlace, OfTiedWeightsAreTheSameButForRounding) {
  ExpectSameTraining({.run = Run(1)}, rounding());
}

TEST_P(GradientsInPlace, OfSeveralMicroBatchesAreTheSameButForRounding) {
  for (const char* const model : {kTiedModel, kUntiedModel}) {
    ExpectSameTraining({.model = model, .run = Run(2)}, rounding());
    ExpectSameTraining({.model = model, .run = Run(2), .two_forwards_first = true}, rounding());
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, GradientsInPlace,
                         ::testing::Combine(::testing::Range(0, 4),
                                            ::testing::Values(Precision::kFp32, Precision::kBf16)),
                         [](const auto& info) {
                           return "stage" + std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == Precision::kFp32 ? "_fp32" : "_bf16");
                         });

}  // namespace
}  // namespace ds::tests
