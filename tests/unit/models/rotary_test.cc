// Turning heads in one pass gives what transformers' operators give, whatever the strides.

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>

#include "runtime/models/layers/rotary.h"
#include "tests/unit/models/last_positions.h"

namespace ds::models {
namespace {

struct Angles {
  at::Tensor cos, sin;  // [S, half]
  Angles to(at::ScalarType dtype) const { return {cos.to(dtype), sin.to(dtype)}; }
};

Angles MakeAngles(std::int64_t tokens, std::int64_t half) {
  const at::Tensor frequencies =
      at::pow(10000.0, at::arange(half).to(at::kFloat) / -static_cast<double>(half));
  const at::Tensor angles = at::outer(at::arange(tokens).to(at::kFloat), frequencies);
  return {angles.cos(), angles.sin()};
}

auto OwnRotary(const Angles& angles) {
  return [angles](const auto& in) { return ApplyRotary(in[0], angles.cos, angles.sin); };
}

// As transformers' apply_rotary_pos_emb, with tables as wide as the two halves.
auto AsTransformers(const Angles& angles) {
  return [angles](const auto& in) {
    const std::int64_t width = 2 * angles.cos.size(1);
    const at::Tensor x = in[0].narrow(3, 0, width);
    const auto halves = x.chunk(2, /*dim=*/3);
    const at::Tensor turned = at::cat({-halves[1], halves[0]}, /*dim=*/3);
    const auto twice = [](const at::Tensor& t) { return at::cat({t, t}, /*dim=*/1); };
    return at::cat({x * twice(angles.cos) + turned * twice(angles.sin),
                    in[0].narrow(3, width, in[0].size(3) - width)},
                   /*dim=*/3);
  };
}

// The size of the point that an element is a coordinate of.
at::Tensor SizeOfPoints(const at::Tensor& x, std::int64_t half) {
  const at::Tensor size = x.narrow(3, 0, half).abs() + x.narrow(3, half, half).abs();
  return at::cat({size, size, x.narrow(3, 2 * half, x.size(3) - 2 * half)}, /*dim=*/3);
}

struct RotaryCase {
  const char* name;
  std::int64_t width, half;
};

class Rotary : public ::testing::TestWithParam<RotaryCase> {};

TEST_P(Rotary, IsWithinAPlaceOfTheOperators) {
  const auto [name, width, half] = GetParam();
  const Angles angles = MakeAngles(/*tokens=*/37, half);
  const at::Tensor x = at::randn({2, 3, 37, width}), upstream = at::randn({2, 3, 37, width});
  const Results exact = RunBothVariants(AsTransformers(angles.to(at::kDouble)), {x.to(at::kDouble)},
                                        upstream.to(at::kDouble));
  ExpectWithinAPlace(RunBothVariants(OwnRotary(angles), {x}, upstream),
                     RunBothVariants(AsTransformers(angles), {x}, upstream), exact,
                     {SizeOfPoints(x, half), SizeOfPoints(upstream, half)});
}

TEST_P(Rotary, RoundsToSixteenBitsOnce) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const auto [name, width, half] = GetParam();
    const Angles angles = MakeAngles(/*tokens=*/37, half).to(dtype);
    const at::Tensor x = at::randn({2, 3, 37, width}).to(dtype);
    const at::Tensor exact = AsTransformers(angles.to(at::kDouble))(Widened({x}));
    const at::Tensor error = (ApplyRotary(x, angles.cos, angles.sin).to(at::kDouble) - exact).abs();
    EXPECT_TRUE(error.le(SizeOfPoints(x, half).abs() / 256).all().item<bool>());
  }
}

// What products, merged products and attention's backward pass leave.
TEST_P(Rotary, GivesTheSameBitsForAnyStrides) {
  const auto [name, width, half] = GetParam();
  const Angles angles = MakeAngles(/*tokens=*/37, half);
  const at::Tensor x = at::randn({2, 37, 6, width}).transpose(1, 2).narrow(1, 1, 3);
  const at::Tensor upstream = at::randn({2, 3, width, 37}).transpose(2, 3);
  const auto on_views = [&](const auto& in) {
    return OwnRotary(angles)(std::vector{in[0].detach()});
  };
  EXPECT_TRUE(on_views(std::vector{x}).equal(on_views(std::vector{x.contiguous()})));
  const Results strided = RunBothVariants(OwnRotary(angles), {x}, upstream);
  const Results plain = RunBothVariants(OwnRotary(angles), {x.contiguous()}, upstream.contiguous());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(strided[i].equal(plain[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Heads, Rotary,
                         ::testing::Values(RotaryCase{"whole", 64, 32},
                                           RotaryCase{"withATail", 40, 20},
                                           RotaryCase{"inPart", 48, 12}),
                         [](const auto& info) { return std::string(info.param.name); });

// transformers 5.24, longrope: short factors while no position is behind the original ones.
TEST(RotaryAngles, FollowTheLongestDocumentAndNotThePadding) {
  const RopeSpec rope{.scaling = RopeSpec::Scaling::kLongRope,
                      .original_positions = 6.0,
                      .short_factors = {1.0, 1.0},
                      .long_factors = {4.0, 8.0}};
  const at::Tensor x = at::ones({1, 1, 10, 4});
  const Batch batch{{"tokens", at::zeros({1, 10}, at::kLong)}};
  const auto turned = [&](std::int64_t longest) {
    return RotaryAngles(rope, 4).Rotate(x, batch, longest);
  };
  const auto by = [&](std::int64_t length) {
    const at::Tensor angles =
        at::arange(10).to(at::kFloat).unsqueeze(-1) * at::tensor(RopeFrequencies(rope, 4, length));
    return ApplyRotary(x, angles.cos(), angles.sin());
  };
  EXPECT_TRUE(turned(6).equal(by(6)));
  EXPECT_TRUE(turned(7).equal(by(10)));
  EXPECT_TRUE(turned(0).equal(by(10))) << "unknown: all tokens count";
  EXPECT_FALSE(by(6).equal(by(10)));
  RotaryAngles kept(rope, 4);
  for (const std::int64_t longest : {7, 6, 7}) {
    EXPECT_TRUE(kept.Rotate(x, batch, longest).equal(by(longest))) << longest;
  }
}

TEST(RotaryAngles, OfAnotherLengthAreRefused) {
  const Angles angles = MakeAngles(/*tokens=*/5, /*half=*/8);
  EXPECT_THROW(ApplyRotary(at::randn({1, 2, 4, 16}), angles.cos, angles.sin), c10::Error);
  EXPECT_THROW(ApplyRotary(at::randn({1, 2, 5, 12}), angles.cos, angles.sin), c10::Error);
}

}  // namespace
}  // namespace ds::models
