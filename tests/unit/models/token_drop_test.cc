#include "runtime/models/decoder/token_drop.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/decoder/build_model.h"
#include "runtime/models/weights/model_config.h"

namespace ds::models {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<BlockList> MakeModel() {
  const auto config = ParseModelConfig(
      R"({"model_type":"llama","vocab_size":48,"hidden_size":24,"intermediate_size":42,
          "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
          "max_position_embeddings":16})",
      "config.json");
  const auto model = BuildModel(config.value(), at::kFloat);
  for (const auto& block : model->blocks()) {
    AllocateParameters(*block);
    block->Initialize(1);
  }
  model->train(true);
  return model;
}

Bundle MakeBundle() {
  return {.batch = {{"tokens", at::arange(30, at::kLong).view({2, 15})},
                    {"documents",
                     at::arange(30, at::kLong).view({2, 15}).remainder(15).ge(6).to(at::kLong)}},
          .hidden = at::randn({2, 15, 24}),
          .random = {.key = 5, .block = 2}};
}

TEST(TokenDrop, SamplesAnewForEachLayerSampleAndStepInAnyPartition) {
  const RandomPosition origin{.key = 3, .block = 1};
  const at::Tensor chosen = ChooseTokens(4, 50, 20, origin, at::kCPU);
  EXPECT_TRUE(chosen.diff(1, 1).gt(0).all().item<bool>()) << "ascending, each once";
  EXPECT_GE(chosen.min().item<std::int64_t>(), 0);
  EXPECT_LT(chosen.max().item<std::int64_t>(), 50);
  EXPECT_FALSE(at::equal(chosen[0], chosen[1]));
  RandomPosition later = origin;
  later.first_sample = 2;
  EXPECT_TRUE(at::equal(ChooseTokens(2, 50, 20, later, at::kCPU), chosen.narrow(0, 2, 2)));
  RandomPosition other = origin;
  other.block = 2;
  EXPECT_FALSE(at::equal(ChooseTokens(4, 50, 20, other, at::kCPU), chosen));
  other = origin;
  other.key = 4;
  EXPECT_FALSE(at::equal(ChooseTokens(4, 50, 20, other, at::kCPU), chosen));
}

TEST(TokenDrop, ALayerProcessesKeptTokensAndOthersSkipIt) {
  const auto model = MakeModel();
  const auto drop = AddTokenDrop(*model, 2, {1}).value();
  Block& layer = model->block(2);
  const Bundle bundle = MakeBundle();
  drop->kept = 0;
  const at::Tensor all = layer.forward(bundle).hidden;
  drop->kept = 15;
  EXPECT_TRUE(at::equal(layer.forward(bundle).hidden, all));
  drop->kept = 6;
  const at::Tensor some = layer.forward(bundle).hidden;
  const at::Tensor chosen = ChooseTokens(2, 15, 6, bundle.random, at::kCPU);
  const at::Tensor positions = chosen.unsqueeze(-1).expand({2, 6, 24});
  // The layer on a batch of those tokens alone, which know their positions and documents.
  drop->kept = 0;
  Bundle alone{.batch = {{"tokens", bundle.tensor("tokens").gather(1, chosen)},
                         {"documents", bundle.tensor("documents").gather(1, chosen)},
                         {"positions", chosen.where(chosen.lt(6), chosen - 6)}},
               .hidden = bundle.hidden.gather(1, positions),
               .random = bundle.random};
  EXPECT_TRUE(some.gather(1, positions).allclose(layer.forward(alone).hidden, 1e-5, 1e-6));
  const at::Tensor changed = some.ne(bundle.hidden).any(/*dim=*/2);
  EXPECT_EQ(changed.sum().item<std::int64_t>(), 12) << "six tokens of each sample";
  // Nothing is dropped where nothing is trained, nor by another layer.
  drop->kept = 6;
  EXPECT_FALSE(at::equal(model->block(1).forward(bundle).hidden, some));
  model->train(false);
  EXPECT_TRUE(at::equal(layer.forward(bundle).hidden, all));
}

TEST(TokenDrop, RefusesAnotherNumberOfLayers) {
  EXPECT_THAT(AddTokenDrop(*MakeModel(), 3, {1}).status().message(),
              HasSubstr("total_layer_num is 3, and the model has 2 layers"));
}

}  // namespace
}  // namespace ds::models
