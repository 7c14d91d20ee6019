#include "runtime/models/layers/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/models/kernels/quantized_weight.h"
#include "runtime/models/weights/adapter_folder.h"
#include "runtime/models/weights/derived_values.h"
#include "tests/support/program.h"
#include "tests/unit/models/golden_folder.h"

namespace ds::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Trained(const BlockList& model) {
  std::vector<std::string> names;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      if (item.value().requires_grad()) names.push_back(block->FullName(item.key()));
    }
  }
  return names;
}

TEST(Lora, IsAddedToTheTargetsAndIsTrainedAlone) {
  const auto model = LoadGoldenModel("llama");
  LoraSpec spec{.rank = 2, .targets = {"q_proj"}};
  ASSERT_TRUE(AddLora(*model, &spec).ok());
  EXPECT_THAT(Trained(*model), ElementsAre("model.layers.0.self_attn.q_proj.lora_A.weight",
                                           "model.layers.0.self_attn.q_proj.lora_B.weight",
                                           "model.layers.1.self_attn.q_proj.lora_A.weight",
                                           "model.layers.1.self_attn.q_proj.lora_B.weight"));
}

TEST(Lora, WithoutTargetsIsAddedToAllLayersButTheHead) {
  const auto model = LoadGoldenModel("llama");
  LoraSpec spec{.rank = 2};
  ASSERT_TRUE(AddLora(*model, &spec).ok());
  EXPECT_THAT(spec.targets, ElementsAre("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj",
                                        "up_proj", "v_proj"));
  LoraSpec wrong{.targets = {"c_attn"}};
  EXPECT_THAT(AddLora(*LoadGoldenModel("llama"), &wrong).message(),
              HasSubstr("is called c_attn (there are: down_proj, gate_proj"));
}

TEST(Lora, OnlyTheLayersBelowAdaptersAreQuantised) {
  const auto model = LoadGoldenModel("llama");
  LoraSpec spec{.rank = 2, .targets = {"q_proj"}};
  ASSERT_TRUE(AddLora(*model, &spec).ok());
  const auto trained = Trained(*model);
  QuantizeBase(*model, BaseFormat::kNf4);
  EXPECT_EQ(Trained(*model), trained);
  int quantised = 0;
  for (const auto& block : model->blocks()) {
    for (const auto& item : block->named_parameters()) {
      if (!IsQuantizedParameter(item.key())) continue;
      EXPECT_EQ(item.value().scalar_type(), at::kByte);
      ++quantised;
    }
  }
  EXPECT_EQ(quantised, 2 * 7) << "of each layer all linear ones, but no head";
}

// What bytes stand for, in place of the weights themselves.
void RoundToFormat(BlockList& model, const BlockList& quantised, BaseFormat format) {
  for (std::size_t i = 0; i < model.blocks().size(); ++i) {
    const auto ours = model.blocks()[i]->named_parameters();
    for (const auto& item : quantised.blocks()[i]->named_parameters()) {
      if (!IsQuantizedParameter(item.key())) continue;
      const at::Tensor& weight = ours[DerivedValues::NameWeight(item.key())];
      const QuantizedLayout layout{
          .format = format, .rows = weight.size(0), .columns = weight.size(1)};
      item.value().set_data(QuantizeWeight(weight, layout));
      weight.set_data(DequantizeWeight(item.value(), layout, at::kFloat));
    }
  }
}

TEST(Lora, ExpertsAreQuantisedAndRoutersAreNot) {
  const auto full = LoadGoldenModel("families/mixtral");
  for (const BaseFormat format : {BaseFormat::kNf4, BaseFormat::kInt8}) {
    const auto rounded = LoadGoldenModel("families/mixtral");
    const auto model = LoadGoldenModel("families/mixtral");
    QuantizeBase(*model, format);
    RoundToFormat(*rounded, *model, format);
    int experts = 0;
    for (const auto& block : model->blocks()) {
      for (const auto& item : block->named_parameters()) {
        const bool is_quantised = IsQuantizedParameter(item.key());
        const bool is_expert = item.key().find(".experts.") != std::string::npos;
        EXPECT_TRUE(is_quantised || !is_expert) << item.key();
        EXPECT_FALSE(is_quantised && item.key().find("moe.gate.") != std::string::npos)
            << item.key();
        experts += is_expert ? 1 : 0;
      }
    }
    EXPECT_GT(experts, 0);
    const Bundle batch = GoldenBatch(ReadGolden("families/mixtral"), 2);
    const double loss = RunBlocks(*model, batch).loss.item<double>();
    EXPECT_NEAR(loss, RunBlocks(*rounded, batch).loss.item<double>(), 1e-6);
    EXPECT_NE(loss, RunBlocks(*full, batch).loss.item<double>());
  }
}

// transformers holds routers and experts in tensors that are no linear layers.
TEST(Lora, IsAddedToNoExpert) {
  LoraSpec all{.rank = 2};
  ASSERT_TRUE(AddLora(*LoadGoldenModel("families/mixtral"), &all).ok());
  EXPECT_THAT(all.targets, ElementsAre("k_proj", "o_proj", "q_proj", "v_proj"));
  LoraSpec expert{.targets = {"w1"}};
  EXPECT_THAT(AddLora(*LoadGoldenModel("families/mixtral"), &expert).message(),
              HasSubstr("is called w1 (there are: k_proj, o_proj, q_proj, v_proj)"));
  const auto qwen = LoadGoldenModel("families/qwen2_moe");
  LoraSpec shared{.rank = 2, .targets = {"up_proj"}};
  ASSERT_TRUE(AddLora(*qwen, &shared).ok());
  EXPECT_THAT(Trained(*qwen),
              ElementsAre("model.layers.0.mlp.shared_expert.up_proj.lora_A.weight",
                          "model.layers.0.mlp.shared_expert.up_proj.lora_B.weight",
                          "model.layers.1.mlp.shared_expert.up_proj.lora_A.weight",
                          "model.layers.1.mlp.shared_expert.up_proj.lora_B.weight"));
}

TEST(Lora, FirstValuesChangeNothing) {
  const auto model = LoadGoldenModel("llama");
  LoraSpec spec{.rank = 4, .targets = {"q_proj"}};
  ASSERT_TRUE(AddLora(*model, &spec).ok());
  const Block& block = model->block(1);
  const std::string layer = block.FullName("self_attn.q_proj.");
  const at::Tensor narrow = at::randn({4 * 32}), wide = at::randn({32 * 4});
  block.InitializeRange(layer + "lora_A.weight", /*seed=*/7, 0, narrow);
  block.InitializeRange(layer + "lora_B.weight", /*seed=*/7, 0, wide);
  EXPECT_TRUE(wide.eq(0.0).all().item<bool>());
  EXPECT_NEAR(narrow.std().item<double>(), 0.102, 0.02) << "1 / sqrt(3 * 32)";
}

TEST(Lora, MergedWeightsHaveTheProductOfTheAdapter) {
  const at::Tensor narrow = at::randn({2, 5}), wide = at::randn({3, 2}), weight = at::randn({3, 5});
  const LoraSpec spec{.rank = 2, .alpha = 3.0};
  LoraMerger merger(spec, /*weights_are_in_out=*/false), turned(spec, /*weights_are_in_out=*/true);
  for (LoraMerger* const each : {&merger, &turned}) {
    each->Take("x.q.lora_A.weight", narrow);
    each->Take("x.q.lora_B.weight", wide);
  }
  const at::Tensor expected = weight + 1.5 * at::mm(wide, narrow);
  EXPECT_TRUE(merger.Merge("x.q.weight", weight).allclose(expected));
  EXPECT_TRUE(turned.Merge("x.q.weight", weight.t()).allclose(expected.t()));
  EXPECT_TRUE(at::equal(merger.Merge("x.k.weight", weight), weight));
  EXPECT_TRUE(at::equal(merger.Merge("x.q.bias", weight), weight));
}

TEST(Lora, MergedWeightsHaveTheNormsThatDoraHasTrained) {
  const at::Tensor narrow = at::randn({2, 5}), wide = at::randn({3, 2}), weight = at::randn({3, 5});
  const at::Tensor magnitudes = at::randn({3}).abs() + 0.5;
  const LoraSpec spec{.rank = 2, .alpha = 3.0, .magnitudes = true};
  LoraMerger merger(spec, /*weights_are_in_out=*/false), turned(spec, /*weights_are_in_out=*/true);
  for (LoraMerger* const each : {&merger, &turned}) {
    each->Take("x.q.lora_A.weight", narrow);
    each->Take("x.q.lora_B.weight", wide);
    each->Take("x.q.lora_magnitude_vector", magnitudes);
  }
  const at::Tensor adapted = weight + 1.5 * at::mm(wide, narrow);
  const at::Tensor expected = adapted * (magnitudes / adapted.norm(2, {1})).unsqueeze(1);
  EXPECT_TRUE(merger.Merge("x.q.weight", weight).allclose(expected));
  EXPECT_TRUE(merger.Merge("x.q.weight", weight).norm(2, {1}).allclose(magnitudes));
  EXPECT_TRUE(turned.Merge("x.q.weight", weight.t()).allclose(expected.t()));
}

class AdapterFolderTest : public ::testing::Test {
 protected:
  static std::shared_ptr<BlockList> Adapted(std::int64_t rank) {
    auto model = LoadGoldenModel("llama");
    LoraSpec spec{.rank = rank, .targets = {"v_proj"}};
    EXPECT_TRUE(AddLora(*model, &spec).ok());
    return model;
  }
  const ds::testing::TemporaryFolder folder_;
};

TEST_F(AdapterFolderTest, RoundTrips) {
  const LoraSpec spec{.rank = 2, .alpha = 5.0, .rank_stabilised = true, .targets = {"v_proj"}};
  const auto model = Adapted(2);
  auto writer =
      AdapterWriter::Create(folder_.path(), *model, MakeAdapterConfig(spec, "base", false));
  std::map<std::string, at::Tensor> values;
  for (const std::string& name : Trained(*model)) {
    values[name] = name.ends_with("A.weight") ? at::randn({2, 32}) : at::randn({16, 2});
    ASSERT_TRUE((*writer)->Write(name, values[name]).ok()) << name;
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  const LoraSpec read = ReadLoraSpec(folder_.path()).value();
  EXPECT_EQ(read.rank, 2);
  EXPECT_EQ(read.scale(), spec.scale());
  EXPECT_THAT(read.targets, ElementsAre("v_proj"));
  const auto reader = AdapterReader::Open(folder_.path()).value();
  EXPECT_TRUE(reader->Check(*model).ok());
  for (const auto& [name, value] : values) {
    at::Tensor got = at::randn({value.numel()});
    ASSERT_TRUE(reader->Read(name, 0, got).ok());
    EXPECT_TRUE(at::equal(got.view(value.sizes()), value)) << name;
  }
  EXPECT_FALSE(reader->Check(*Adapted(3)).ok());
  auto other = LoadGoldenModel("llama");
  LoraSpec fewer{.rank = 2, .targets = {"q_proj"}};
  ASSERT_TRUE(AddLora(*other, &fewer).ok());
  EXPECT_FALSE(reader->Check(*other).ok());
}

// The table that the head is tied to is in the file twice, as PEFT wants to find it.
TEST_F(AdapterFolderTest, WritesTheTiedHeadAndItsTable) {
  const auto source = GoldenFolder() / "adapters/ties_embedding";
  const std::string table = "model.embed_tokens.weight", at_front = "base_model.model.";
  LoraSpec spec = ReadLoraSpec(source).value();
  const auto model = LoadGoldenModel("families/qwen2");
  ASSERT_TRUE(AddLora(*model, &spec).ok());
  const auto reader = AdapterReader::Open(source).value();
  EXPECT_TRUE(reader->Check(*model, spec.copies).ok());
  EXPECT_FALSE(reader->Check(*model).ok());
  const auto writer =
      AdapterWriter::Create(folder_.path(), *model, MakeAdapterConfig(spec, "base", false),
                            spec.full, spec.copies)
          .value();
  for (const auto& block : model->blocks()) {
    for (const auto& item : block->named_parameters()) {
      const std::string name = block->FullName(item.key());
      if (!IsLoraParameter(name) && !spec.full.contains(name)) continue;
      ASSERT_TRUE(writer->Write(name, at::ones(item.value().sizes())).ok()) << name;
    }
  }
  ASSERT_TRUE(writer->Finish().ok());
  const auto file = checkpoint::SafetensorsFile::Open(folder_.path() / kAdapterWeightsFile).value();
  at::Tensor head = at::zeros({320, 16});
  ASSERT_TRUE(file.Read(at_front + "lm_head.weight", 0, head).ok());
  EXPECT_TRUE(at::equal(head, at::ones({320, 16})));
  EXPECT_TRUE(AdapterReader::Open(folder_.path()).value()->Check(*model, spec.copies).ok());
}

TEST_F(AdapterFolderTest, ATiedHeadOfOtherValuesIsRefused) {
  const std::string table = "base_model.model.model.embed_tokens.weight",
                    head = "base_model.model.lm_head.weight";
  const auto model = LoadGoldenModel("families/qwen2");
  auto writer = checkpoint::SafetensorsWriter::Create(
                    folder_.path() / kAdapterWeightsFile,
                    {{table, at::kFloat, {320, 16}}, {head, at::kFloat, {320, 16}}})
                    .value();
  at::Tensor values = at::ones({320, 16});
  ASSERT_TRUE(writer->Write(table, values).ok());
  values[319][15] = 2.0;
  ASSERT_TRUE(writer->Write(head, values).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const Status checked = AdapterReader::Open(folder_.path())
                             .value()
                             ->Check(*model, {{"model.embed_tokens.weight", head}});
  EXPECT_THAT(checked.message(), HasSubstr(table + " and " + head + " have different values"));
}

TEST(FreezeParameters, TakesPatternsOfFullNames) {
  const auto model = LoadGoldenModel("llama");
  ASSERT_TRUE(FreezeParameters(*model, {"model.layers.*", "lm_head.weight"}).ok());
  EXPECT_THAT(Trained(*model), ElementsAre("model.embed_tokens.weight", "model.norm.weight"));
  EXPECT_THAT(FreezeParameters(*model, {"layers.*"}).message(),
              HasSubstr("no parameter of the model matches layers.*; their names are like model."));
  EXPECT_THAT(FreezeParameters(*model, {"*"}).message(), HasSubstr("nothing is left to train"));
}

}  // namespace
}  // namespace ds::models
