#include "runtime/models/layers/lm_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::models {
namespace {

// Enough rows of a large enough vocabulary for several chunks.
constexpr std::int64_t kSamples = 3, kTokens = 200, kWidth = 16, kVocabulary = 50257;

struct LossInputs {
  at::Tensor hidden, weight, labels;
};

LossInputs MakeInputs(at::ScalarType dtype) {
  at::manual_seed(1);
  return {at::randn({kSamples, kTokens, kWidth}).to(dtype).set_requires_grad(true),
          at::randn({kVocabulary, kWidth}).to(dtype).set_requires_grad(true),
          at::randint(kVocabulary, {kSamples, kTokens}, at::kLong)};
}

LossInputs Converted(const LossInputs& in, at::ScalarType dtype) {
  return {in.hidden.detach().to(dtype).set_requires_grad(true),
          in.weight.detach().to(dtype).set_requires_grad(true), in.labels};
}

// What transformers computes: all logits, then cross entropy in fp32 (here fp64 when they are).
at::Tensor Reference(const LossInputs& in) {
  at::Tensor logits = at::linear(in.hidden, in.weight);
  if (logits.scalar_type() != at::kDouble) logits = logits.to(at::kFloat);
  return at::cross_entropy_loss(logits.view({-1, kVocabulary}), in.labels.view(-1));
}

double RelativeError(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).to(at::kFloat).norm() / b.to(at::kFloat).norm()).item<double>();
}

class LmLossTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  // What fp32 gives is compared with fp64: in which order a matrix product adds, and so what it
  // loses, differs between processors. The tolerance is the size that the rounding of a sum over
  // the vocabulary has, sqrt(50257) * 2^-24. In bf16 the reference rounds the same values.
  at::ScalarType reference_dtype() const {
    return GetParam() == at::kFloat ? at::kDouble : GetParam();
  }
  double tolerance() const { return GetParam() == at::kFloat ? 1.3e-5 : 1e-2; }
};

// Off the label a row's gradients are about 1 / (tokens * vocabulary), 3e-8: below fp16's smallest
// number unless the loss scale is in them from the start.
TEST(LmLoss, GradientsInFp16NeitherVanishNorDependOnTheExpectedScaleOtherwise) {
  LossInputs in = MakeInputs(at::kHalf);
  in.hidden = in.hidden.detach().mul(0.01).set_requires_grad(true);
  const LossInputs wide = Converted(in, at::kFloat);
  Reference(wide).backward();
  constexpr double kScale = 8192.0;
  const at::Tensor upstream = at::full({}, kScale, at::kFloat);
  LmLoss(in.hidden, in.weight, in.labels, {.expected_scale = kScale}).backward(upstream);
  const at::Tensor gradient = in.weight.grad().to(at::kFloat).div(kScale);
  EXPECT_LT(RelativeError(gradient, wide.weight.grad()), 1e-2);
  // Rows that are nobody's label hold nothing but those small numbers.
  const std::int64_t row = 7;
  ASSERT_FALSE(in.labels.eq(row).any().item<bool>());
  EXPECT_LT(RelativeError(gradient[row], wide.weight.grad()[row]), 3e-2);
}

TEST_P(LmLossTest, LossAndGradientsMatchFullLogits) {
  LossInputs in = MakeInputs(GetParam());
  in.labels[1].slice(0, 10, 30).fill_(kIgnoredLabel);
  const LossInputs reference = Converted(in, reference_dtype());
  const at::Tensor expected = Reference(reference);
  // As gradient accumulation and loss scaling do.
  (expected * 0.25).backward();

  const at::Tensor loss = LmLoss(in.hidden, in.weight, in.labels);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), tolerance());
  (loss * 0.25).backward();
  EXPECT_LT(RelativeError(in.hidden.grad(), reference.hidden.grad()), tolerance());
  EXPECT_LT(RelativeError(in.weight.grad(), reference.weight.grad()), tolerance());
  EXPECT_EQ(in.weight.grad().scalar_type(), GetParam());
}

TEST_P(LmLossTest, EvaluationGivesTheSameLoss) {
  const LossInputs in = MakeInputs(GetParam());
  const double trained = LmLoss(in.hidden, in.weight, in.labels).item<double>();
  c10::NoGradGuard no_grad;
  EXPECT_EQ(LmLoss(in.hidden, in.weight, in.labels).item<double>(), trained);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LmLossTest, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(LmLoss, ComputesOnlyTheGradientsAskedFor) {
  LossInputs in = MakeInputs(at::kFloat);
  in.weight = in.weight.detach();
  LmLoss(in.hidden, in.weight, in.labels).backward();
  EXPECT_TRUE(in.hidden.grad().defined());
  EXPECT_FALSE(in.weight.grad().defined());
}

TEST(LmLoss, NamesALabelOutsideTheVocabulary) {
  for (const std::int64_t bad : {std::int64_t{-1}, kVocabulary}) {
    const LossInputs in = MakeInputs(at::kFloat);
    in.labels[1][3] = bad;
    try {
      LmLoss(in.hidden, in.weight, in.labels);
      FAIL() << "accepted label " << bad;
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(),
                  ::testing::HasSubstr("label " + std::to_string(bad) +
                                       " at token 203 of the micro-batch is outside the "
                                       "vocabulary of 50257 tokens"));
    }
  }
}

TEST(LmLoss, MeasuresLabelsThatCount) {
  const at::Tensor labels =
      at::tensor({kIgnoredLabel, std::int64_t{7}, std::int64_t{3}}, at::kLong);
  const LabelRange range = MeasureLabels(labels);
  EXPECT_EQ(range.count, 2);
  EXPECT_EQ(range.least, 0) << "no less than 0, where none is";
  EXPECT_EQ(range.most, 7);
  EXPECT_EQ(MeasureLabels(labels.narrow(0, 0, 1)).count, 0);
  EXPECT_EQ(MeasureLabels(labels.narrow(0, 0, 0)).count, 0);
  EXPECT_EQ(MeasureLabels(at::tensor({-1, 5}, at::kLong)).least, -1);
  EXPECT_EQ(MeasureLabels(at::full({2, 3}, 4, at::kLong)).count, 6);
}

TEST(LmLoss, RefusesASecondBackward) {
  const LossInputs in = MakeInputs(at::kFloat);
  const at::Tensor loss = LmLoss(in.hidden, in.weight, in.labels);
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), c10::Error);
}

// The fused loop against the operators, which rows that lie apart go through on a GPU, on widths
// around the vector length.
TEST(CrossEntropyRows, FusedLoopAgreesWithTheOperators) {
  for (const std::int64_t columns : {1, 2, 15, 16, 17, 31, 32, 33, 257}) {
    at::Tensor logits = at::randn({5, columns}) * 20;
    at::Tensor expected_logits = at::empty({5, columns + 3}).narrow(1, 0, columns).copy_(logits);
    const RowLabels labels{at::randint(columns, {5}, at::kLong), kIgnoredLabel};
    labels.ids[2] = kIgnoredLabel;
    at::Tensor losses = at::randn({5}), expected_losses = at::randn({5});
    CrossEntropyRows(logits, labels, 0.5, &losses);
    CrossEntropyRowsByOperators(expected_logits, labels, 0.5, &expected_losses);
    EXPECT_LT((losses - expected_losses).abs().max().item<double>(), 1e-5) << columns;
    EXPECT_LT((logits - expected_logits).abs().max().item<double>(), 1e-6) << columns;
  }
}

TEST(CrossEntropyRows, SurvivesLargeLogitsAndShowsNotANumber) {
  at::Tensor logits = at::tensor({1e4F, -1e4F, 0.0F, 1e4F}).view({1, 4});
  const RowLabels labels{at::tensor({std::int64_t{0}}), kIgnoredLabel};
  at::Tensor losses = at::randn({1});
  CrossEntropyRows(logits, labels, 1.0, &losses);
  EXPECT_NEAR(losses.item<double>(), std::log(2.0), 1e-6);
  EXPECT_NEAR(logits[0][3].item<double>(), 0.5, 1e-6);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      at::Tensor broken = at::tensor({1.0F, bad, 0.0F, 2.0F}).view({1, 4}).to(dtype);
      CrossEntropyRows(broken, labels, 1.0, &losses);
      EXPECT_TRUE(losses.isnan().item<bool>());
      EXPECT_TRUE(broken.isnan().any().item<bool>());
    }
  }
}

}  // namespace
}  // namespace ds::models
