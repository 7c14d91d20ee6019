// The parts of the rule of attention that a decoder's layers share.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/models/layers/token_positions.h"
#include "runtime/models/weights/model_config.h"

namespace ds::models {
namespace {

TensorPlan MakeBloomPlan() {
  const auto config = ParseModelConfig(
      R"({"model_type": "bloom", "vocab_size": 50, "hidden_size": 16, "n_layer": 1, "n_head": 2})",
      "config.json");
  return TensorPlan::Create(config.value().decoder, /*part=*/0, /*parts=*/1).value();
}

// Distances between near tokens keep their digits in 16 bits, also if another sample is longer.
TEST(AttentionTerms, CachedDistancesAreRelativeToEachQuery) {
  const TensorPlan plan = MakeBloomPlan();
  AttentionTerms terms(plan, {0, 2});
  KeyValueCache cache(plan.slice(), {.samples = 2, .capacity = 2000}, at::kBFloat16);
  cache.Extend({20, 1900});
  cache.Extend({1, 1});
  const at::Tensor q = at::zeros({2, 2, 1, 8}, at::kBFloat16);
  const at::Tensor bias = terms.FindCached(/*windowed=*/false, cache, q).to(at::kDouble);
  const double slope = std::exp2(-4.0);  // of the first of two heads
  for (const auto& [sample, position] : {std::pair<std::int64_t, std::int64_t>{0, 20}, {1, 1900}}) {
    for (std::int64_t distance = 0; distance < 8; ++distance) {
      EXPECT_EQ(bias[sample][0][0][position - distance].item<double>(),
                -slope * static_cast<double>(distance));
    }
  }
}

TEST(AttentionTerms, DocumentsOfABundleAreNotReadAgain) {
  const TensorPlan plan = MakeBloomPlan();
  AttentionTerms terms(plan, {0, 2});
  const at::Tensor numbers = at::tensor({0, 0, 1}).view({1, 3});
  Bundle bundle{.batch = {{"documents", numbers}}};
  const auto made = terms.FindDocuments(bundle);
  EXPECT_EQ(terms.FindDocuments(bundle), made) << "once for all layers";
  bundle.documents = std::make_shared<const kernels::SampleDocuments>(numbers);
  EXPECT_EQ(terms.FindDocuments(bundle), bundle.documents);
  bundle.batch["documents"] = at::tensor({0, 1, 1}).view({1, 3});
  EXPECT_NE(terms.FindDocuments(bundle), bundle.documents) << "they are of another tensor";
  bundle.batch.erase("documents");
  EXPECT_EQ(terms.FindDocuments(bundle), nullptr);
}

}  // namespace
}  // namespace ds::models
