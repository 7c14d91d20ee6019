// What all optimizers have in common, and one update of each from the same state as the program
// that it is compared with (goldens/steps.json, made by scripts/goldens).

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/files.h"
#include "runtime/config/file/check_config.h"
#include "runtime/optim/muon.h"
#include "runtime/optim/optimizer.h"
#include "tests/places.h"
#include "tests/unit/optim/emulated_launch.h"
#include "tests/unit/optim/optimizer_slices.h"

namespace ds::optim {
namespace {

using Json = nlohmann::json;

class Optimizers : public ::testing::TestWithParam<config::OptimizerAlgorithm> {
 protected:
  std::unique_ptr<Optimizer> Make() const {
    return MakeOptimizer({.weight_decay = 0.1, .algorithm = GetParam()});
  }
};

// Without those that step whole parameters only.
class ShardableOptimizers : public Optimizers {};

TEST_P(ShardableOptimizers, ComputeTheSameBitsForAnyShards) {
  const auto optimizer = Make();
  const OptimizerSlice full = RandomPart(*optimizer, 64 * 40);
  OptimizerSlice split = CopyOf(full);
  const Update update{.lr = 1e-2, .gradient_scale = 0.3, .step = 3};
  Step(*optimizer, update, {full});
  // Three views of one parameter.
  std::vector<OptimizerSlice> pieces;
  for (const auto& [start, count] : {std::pair{0, 64 * 16}, {64 * 16, 64}, {64 * 17, 64 * 23}}) {
    pieces.push_back(Cut(split, start, count));
    pieces.back().segments = pieces.back().owned = {{.parameter = 0, .start = 0, .count = count}};
  }
  Step(*optimizer, update, pieces);
  for (std::size_t i = 0; i < full.state.size(); ++i) {
    EXPECT_TRUE(full.state[i].equal(split.state[i]));
  }
  // A sum over the parameter (Lamb) is added in another order, whatever else is equal.
  EXPECT_LT(Distance(full.parameter, split.parameter), 1e-7);
}

TEST_P(Optimizers, ScaleTheGradientWithoutChangingIt) {
  const auto optimizer = Make();
  const OptimizerSlice scaled = RandomPart(*optimizer, 256);
  const OptimizerSlice plain = CopyOf(scaled);
  plain.gradient.mul_(0.25);
  const at::Tensor before = scaled.gradient.clone();
  Step(*optimizer, {.lr = 1e-2, .gradient_scale = 0.25, .step = 2}, {scaled});
  Step(*optimizer, {.lr = 1e-2, .step = 2}, {plain});
  EXPECT_TRUE(SameBits(scaled, plain));
  EXPECT_TRUE(scaled.gradient.equal(before));
}

TEST_P(Optimizers, WidenNarrowGradientsAndPublishTheRoundedParameter) {
  const auto optimizer = Make();
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    OptimizerSlice narrow = RandomPart(*optimizer, 3000);
    narrow.gradient = narrow.gradient.to(type);
    OptimizerSlice wide = CopyOf(narrow);
    wide.gradient = narrow.gradient.to(at::kFloat);
    narrow.published = at::zeros({3000}, type);
    Step(*optimizer, {.lr = 1e-2, .step = 1}, {narrow});
    Step(*optimizer, {.lr = 1e-2, .step = 1}, {wide});
    EXPECT_TRUE(SameBits(narrow, wide));
    EXPECT_TRUE(narrow.published.equal(wide.parameter.to(type)));
  }
}

TEST_P(Optimizers, LeavePaddingAtZero) {
  const auto optimizer = Make();
  OptimizerSlice slice = RandomPart(*optimizer, 128);
  slice.segments = slice.owned = {{.parameter = 0, .start = 0, .count = 100}};
  for (const at::Tensor& view : {slice.parameter, slice.gradient}) view.narrow(0, 100, 28).zero_();
  for (const at::Tensor& state : slice.state) state.narrow(0, 100, 28).zero_();
  Step(*optimizer, {.lr = 1e-2, .step = 1}, {slice});
  EXPECT_EQ(slice.parameter.narrow(0, 100, 28).abs().max().item<float>(), 0.0F);
}

// What runs on a GPU, with its launches emulated.
TEST_P(Optimizers, LaunchesMatchTheKernels) {
  const auto kernels = Make();
  const auto launches = Make();
  OptimizerSlice ours = RandomPart(*kernels, 5000);
  // Two parameters, the second one where no vector begins.
  ours.segments = ours.owned = {{.parameter = 0, .start = 0, .count = 3001},
                                {.parameter = 1, .start = 3001, .count = 1999}};
  ours.gradient = ours.gradient.to(at::kBFloat16);
  OptimizerSlice theirs = CopyOf(ours);
  theirs.launch = &EmulatedUpdate;
  theirs.published = at::zeros({5000}, at::kBFloat16);
  for (int step = 1; step <= 4; ++step) {
    const Update update{.lr = 1e-2, .gradient_scale = 0.5, .step = step, .beta1 = 0.7};
    Step(*kernels, update, {ours});
    Step(*launches, update, {theirs});
  }
  EXPECT_LT(Distance(ours.parameter, theirs.parameter), 2e-6);
  for (std::size_t i = 0; i < ours.state.size(); ++i) {
    EXPECT_LT(Distance(ours.state[i], theirs.state[i]), 2e-6);
  }
  EXPECT_TRUE(theirs.published.equal(theirs.parameter.to(at::kBFloat16)));
  EXPECT_TRUE(theirs.gradient.equal(ours.gradient));
}

const config::OptimizerAlgorithm kShardable[] = {
    config::AdamConfig{.beta2 = 0.95}, config::SgdConfig{.momentum = 0.8}, config::AdagradConfig{},
    config::LionConfig{.beta2 = 0.95}, config::LambConfig{.beta2 = 0.95}};

INSTANTIATE_TEST_SUITE_P(All, ShardableOptimizers, ::testing::ValuesIn(kShardable));
// The 1-bit ones in their warm-up.
INSTANTIATE_TEST_SUITE_P(OneBit, Optimizers,
                         ::testing::Values(config::OneBitAdamConfig{.beta2 = 0.95},
                                           config::OneBitLambConfig{.beta2 = 0.95},
                                           config::ZeroOneAdamConfig{.beta2 = 0.95}));
INSTANTIATE_TEST_SUITE_P(All, Optimizers, ::testing::ValuesIn(kShardable));

const Json& StepGoldens() {
  static const Json goldens = Json::parse(
      ReadFile(std::filesystem::path(DS_SOURCE_DIR) / "tests/unit/optim/goldens/steps.json")
          .value());
  return goldens;
}

at::Tensor Values(const Json& numbers) {
  return at::tensor(numbers.get<std::vector<double>>()).to(at::kFloat);
}

config::OptimizerConfig ConfigOf(const Json& golden) {
  const Json json = {{"train_batch_size", 1}, {"optimizer", golden["optimizer"]}};
  const auto checked = config::CheckConfig(json.dump(), "ds_config.json", 1);
  DS_CHECK_MSG(checked.ok, checked.errors.empty() ? "" : checked.errors[0].message);
  return checked.config.optimizer;
}

// One part for each parameter, as Muon groups them.
std::vector<OptimizerSlice> PartsOf(const Json& golden, const char* when,
                                    const Optimizer& optimizer,
                                    const config::OptimizerConfig& config) {
  std::vector<OptimizerSlice> slices;
  for (const Json& parameter : golden["parameters"]) {
    const Json& at = parameter[when];
    const auto index = std::ssize(slices);
    OptimizerSlice slice{.parameter = Values(at["parameter"])};
    if (at.contains("gradient")) slice.gradient = Values(at["gradient"]);
    slice.full_numel = slice.parameter.numel();
    slice.full_parameters = {{.start = 0, .shape = golden["shapes"][index]}};
    if (const auto* muon = std::get_if<config::MuonConfig>(&config.algorithm)) {
      const auto group_of = WithMuonMatrices(OneGroup);
      slice.group = group_of(0, "w", at::empty(slice.full_parameters[0].shape, at::kFloat));
      if (!slice.group.muon) slice.group.lr_factor = muon->adam_lr / config.lr;
    }
    for (const std::string_view name : optimizer.state_names(slice.group)) {
      slice.state.push_back(Values(at["state"][std::string(name)]));
    }
    slice.segments = slice.owned = {{.parameter = index, .start = 0, .count = slice.full_numel}};
    slices.push_back(std::move(slice));
  }
  return slices;
}

double RelativeDistance(const at::Tensor& ours, const at::Tensor& theirs) {
  return Distance(ours, theirs) / theirs.abs().max().item<double>();
}

// With null by the CPU's kernels.
void ExpectTheReference(const Json& golden, FlatUpdate launch) {
  const config::OptimizerConfig config = ConfigOf(golden);
  const auto optimizer = MakeOptimizer(config);
  std::vector<OptimizerSlice> ours = PartsOf(golden, "before", *optimizer, config);
  const std::vector<OptimizerSlice> expected = PartsOf(golden, "after", *optimizer, config);
  for (OptimizerSlice& slice : ours) slice.launch = launch;
  Step(*optimizer, {.lr = config.lr, .step = golden["update"]}, ours);
  double distance = 0.0;
  for (std::size_t p = 0; p < ours.size(); ++p) {
    distance = std::max(distance, RelativeDistance(ours[p].parameter, expected[p].parameter));
    for (std::size_t i = 0; i < ours[p].state.size(); ++i) {
      EXPECT_LE(RelativeDistance(ours[p].state[i], expected[p].state[i]), 1e-6)
          << optimizer->state_names(ours[p].group)[i];
    }
  }
  EXPECT_LE(distance, 1e-6);
  fmt::print("{:24} one update against {:45} {:.1e}\n", golden["name"].get<std::string>(),
             golden["program"].get<std::string>(), distance);
}

class StepFromTheSameState : public ::testing::TestWithParam<std::size_t> {};

TEST_P(StepFromTheSameState, EqualsTheReference) {
  ExpectTheReference(StepGoldens()[GetParam()], nullptr);
}

TEST_P(StepFromTheSameState, EqualsTheReferenceWhereItIsLaunched) {
  ExpectTheReference(StepGoldens()[GetParam()], &EmulatedUpdate);
}

INSTANTIATE_TEST_SUITE_P(Goldens, StepFromTheSameState,
                         ::testing::Range<std::size_t>(0, StepGoldens().size()),
                         [](const auto& info) {
                           return StepGoldens()[info.param]["name"].template get<std::string>();
                         });

}  // namespace
}  // namespace ds::optim
