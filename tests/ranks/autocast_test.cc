// torch_autocast: what travels between ranks in the lower precision.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include "runtime/base/isa_probe.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/dtype_policy.h"
#include "runtime/engine/deepspeed_api.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/models/layers/layers.h"
#include "tests/ranks/device_world.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

// Even half of the vector is more than the device world takes for numbers that ranks tell.
constexpr std::int64_t kIn = 28, kOut = 5;

class WithLinear : public Block {
 public:
  explicit WithLinear(at::ScalarType product)
      : Block("block"),
        product_(product),
        gain_(register_parameter("gain", models::UnmaterialisedParameter({kIn}, at::kFloat))),
        linear_(register_module("linear", std::make_shared<models::Linear>(
                                              models::Linear::Shape{.in = kIn, .out = kOut},
                                              at::TensorOptions(at::kFloat)))) {}

  Bundle forward(Bundle bundle) override {
    const at::Tensor y = linear_->forward(bundle.tensor("input") * gain_);
    EXPECT_EQ(y.scalar_type(), product_);
    bundle.loss = at::tanh(y.to(at::kFloat) + 0.3).square().mean();
    return bundle;
  }

 private:
  at::ScalarType product_;
  at::Tensor gain_;
  std::shared_ptr<models::Linear> linear_;
};

bool FitsIn(at::ScalarType dtype, const at::Tensor& value) {
  EXPECT_GT(value.abs().max().item<double>(), 0.0);
  return value.equal(value.to(dtype).to(at::kFloat));
}

class Autocast : public ::testing::TestWithParam<config::DataType> {};

// All that ranks move is what NCCL would take; what they tell each other goes over the control
// group.
TEST_P(Autocast, GradientsOfSafeModulesTravelInTheLowerPrecisionFromStage1) {
  [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
  const at::ScalarType dtype = precision::ToScalarType(GetParam());
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool safe : {true, false}) {
      SCOPED_TRACE("stage " + std::to_string(stage) + (safe ? "" : ", no safe modules"));
      config::DsConfig config = TinyConfig({.stage = stage});
      config.torch_autocast = {.enabled = true, .dtype = GetParam()};
      if (safe) config.torch_autocast.lower_precision_safe_modules = {"torch.nn.Linear"};
      testing::RunRanks(2, [&](comm::Communicator& host) {
        const auto world = MakeDeviceWorld(host);
        auto model = std::make_shared<BlockList>();
        model->Add(std::make_shared<WithLinear>(dtype));
        const auto engine = Engine::create(model, config, {.world = world.get()}).value();
        const at::Tensor input = at::arange(3 * kIn, at::kFloat).view({3, kIn}).sin() + host.rank();
        engine->backward(engine->forward({.batch = {{"input", input}}}));
        // What travels is scaled, by a power of two.
        const at::Tensor weight = TensorAccess(*engine).GetFullGrad("block.linear.weight").value() *
                                  DeepSpeedApi(*engine).loss_scale();
        const at::Tensor gain = TensorAccess(*engine).GetFullGrad("block.gain").value() *
                                DeepSpeedApi(*engine).loss_scale();
        EXPECT_EQ(FitsIn(dtype, weight), safe && stage > 0);
        EXPECT_FALSE(FitsIn(dtype, gain));
        EXPECT_FALSE(engine->step().value().skipped);
        EXPECT_FALSE(
            FitsIn(dtype, TensorAccess(*engine).GetFullFp32Param("block.linear.weight").value()))
            << "the weights are fp32";
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Autocast,
                         ::testing::Values(config::DataType::kBf16, config::DataType::kFp16));

}  // namespace
}  // namespace ds::tests
