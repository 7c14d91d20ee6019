#include "runtime/models/weights/weights.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "runtime/base/files.h"
#include "runtime/models/decoder/build_model.h"
#include "tests/support/program.h"
#include "tests/unit/models/golden_folder.h"

namespace ds::models {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class WeightsTest : public ::testing::Test {
 protected:
  // Writes the golden model's weights into folder_.
  void Save(const BlockList& model, std::uint64_t shard_bytes = ModelWriter::kShardBytes) const {
    auto writer = ModelWriter::Create(folder_, config_, model, shard_bytes).value();
    for (const auto& block : model.blocks()) {
      for (const auto& item : block->named_parameters()) {
        ASSERT_TRUE(writer->Write(block->FullName(item.key()), item.value()).ok());
      }
    }
    const Status status = writer->Finish();
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // Expects folder_ to hold exactly the parameters of `model`.
  void ExpectSaved(const BlockList& model) const {
    const ModelConfig config = ReadModelConfig(folder_.string()).value();
    const auto copy = BuildModel(config, at::kFloat);
    const auto reader = WeightReader::Open(folder_).value();
    EXPECT_EQ(reader->Check(*copy).value(), std::vector<std::string>{});
    for (int i = 0; i < copy->size(); ++i) {
      LoadWeights(*reader, copy->block(i));
      const auto expected = model.block(i).parameters(), got = copy->block(i).parameters();
      ASSERT_EQ(expected.size(), got.size());
      for (std::size_t p = 0; p < got.size(); ++p) EXPECT_TRUE(at::equal(expected[p], got[p]));
    }
  }

  std::string CheckError(const BlockList& model) const {
    return WeightReader::Open(folder_).value()->Check(model).status().message();
  }

  const ds::testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  ModelConfig config_ = ReadModelConfig((GoldenFolder() / "llama").string()).value();
};

// transformers 5 does not tie what a folder stores twice with other values.
TEST_F(WeightsTest, ATiedHeadIsStoredAsTheTable) {
  const auto model = LoadGoldenModel("llama");
  Block& first = model->block(0);
  Block& last = model->block(model->size() - 1);
  DecoderSpec spec = config_.decoder;
  ASSERT_FALSE(spec.tied_head);
  Save(*model);
  spec.tied_head = true;
  const auto check = [&] {
    std::vector<std::string> unused = {"lm_head.weight", "other"};
    const Status status = WeightReader::Open(folder_).value()->CheckTiedHead(spec, &unused);
    EXPECT_EQ(unused.size(), status.ok() ? 1U : 2U);
    return std::string(status.message());
  };
  EXPECT_THAT(check(), HasSubstr("lm_head.weight has other values"));
  const torch::NoGradGuard no_gradients;
  last.named_parameters()["lm_head.weight"].copy_(first.parameters()[0]);
  Save(*model);
  EXPECT_EQ(check(), "");
}

TEST_F(WeightsTest, RoundTrips) {
  const auto model = LoadGoldenModel("llama");
  Save(*model);
  EXPECT_TRUE(fs::exists(folder_ / "model.safetensors"));
  ExpectSaved(*model);
}

TEST_F(WeightsTest, SplitsIntoShardsWithAnIndex) {
  const auto model = LoadGoldenModel("llama");
  Save(*model);  // a single file from before must not hide the shards
  Save(*model, /*shard_bytes=*/50'000);
  EXPECT_FALSE(fs::exists(folder_ / "model.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "model-00001-of-00004.safetensors"));
  ExpectSaved(*model);
  Save(*model);
  EXPECT_FALSE(fs::exists(folder_ / "model.safetensors.index.json"));
  ExpectSaved(*model);
}

TEST_F(WeightsTest, NothingAppearsUnderAFinalNameBeforeTheEnd) {
  const auto model = LoadGoldenModel("llama");
  {
    auto writer = ModelWriter::Create(folder_, config_, *model).value();
    EXPECT_THAT(writer->Finish().message(), HasSubstr("was never written"));
    EXPECT_THAT(writer->Write("lm_head.bias", at::zeros({1})).message(),
                HasSubstr("the model has no parameter 'lm_head.bias'"));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(WeightsTest, RefusesAModelWithoutDiskSpaceBeforeTheFirstTensor) {
  config_.decoder.mlp_width = std::int64_t{1} << 50;
  const auto model = BuildModel(config_, at::kFloat);  // of shapes alone
  const auto writer = ModelWriter::Create(folder_, config_, *model);
  EXPECT_EQ(writer.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(writer.status().message(), HasSubstr("are free: free some space"));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(WeightsTest, TheConfigNamesClassAndDtype) {
  config_ = ReadModelConfig("gpt2-demo").value();
  const auto model = BuildModel(config_, at::kBFloat16);
  for (const auto& block : model->blocks()) {
    AllocateParameters(*block);
    block->Initialize(1);
  }
  Save(*model);
  const auto json = nlohmann::json::parse(ReadFile(folder_ / "config.json").value());
  EXPECT_EQ(json["architectures"], nlohmann::json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(json["dtype"], "bfloat16");
}

TEST_F(WeightsTest, TokenizerAndGenerationComeAlong) {
  const fs::path source = folder_ / "source";
  fs::create_directory(source);
  const std::string bytes("a\0b\n", 4);
  for (const char* name : {"tokenizer.json", "tokenizer.model", "generation_config.json"}) {
    ASSERT_TRUE(WriteFileAtomically(source / name, name + bytes).ok());
  }
  ASSERT_TRUE(WriteFileAtomically(source / "optimizer.pt", "not the model's").ok());
  ASSERT_TRUE(
      WriteFileAtomically(source / "merges.txt", "version https://git-lfs.github.com/spec/v1\n")
          .ok());
  config_.folder = source;
  Save(*LoadGoldenModel("llama"));
  EXPECT_EQ(ReadFile(folder_ / "tokenizer.json").value(), "tokenizer.json" + bytes);
  EXPECT_EQ(ReadFile(folder_ / "tokenizer.model").value(), "tokenizer.model" + bytes);
  EXPECT_TRUE(fs::exists(folder_ / "generation_config.json"));
  EXPECT_FALSE(fs::exists(folder_ / "optimizer.pt"));
  EXPECT_FALSE(fs::exists(folder_ / "merges.txt"));
}

TEST_F(WeightsTest, NamesATensorThatIsNotFinite) {
  const auto model = LoadGoldenModel("llama");
  const auto reader = [this] { return WeightReader::Open(folder_).value(); };
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    const at::Tensor norm = model->block(1).named_parameters()["input_layernorm.weight"];
    const at::Tensor before = norm.clone();
    norm.detach()[3] = bad;
    Save(*model);
    const at::Tensor values = at::zeros({16});
    EXPECT_THAT(reader()->Read("model.layers.0.input_layernorm.weight", 0, values).message(),
                HasSubstr("model.safetensors: tensor 'model.layers.0.input_layernorm.weight': it "
                          "has values that are NaN or infinite"));
    EXPECT_TRUE(reader()->Read("model.layers.0.input_layernorm.weight", 4, values).ok());
    norm.detach().copy_(before);
  }
}

TEST_F(WeightsTest, NamesAShardThatIsNotThere) {
  Save(*LoadGoldenModel("llama"), /*shard_bytes=*/50'000);
  fs::remove(folder_ / "model-00002-of-00004.safetensors");
  EXPECT_THAT(WeightReader::Open(folder_).status().message(),
              HasSubstr("model.safetensors.index.json names the shard "
                        "model-00002-of-00004.safetensors, which is not in its folder"));
  ASSERT_TRUE(WriteFileAtomically(folder_ / "model-00002-of-00004.safetensors",
                                  "version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
                  .ok());
  EXPECT_THAT(WeightReader::Open(folder_).status().message(),
              HasSubstr("model-00002-of-00004.safetensors: this is a Git LFS pointer"));
}

TEST_F(WeightsTest, NamesAMissingTensor) {
  Save(*LoadGoldenModel("llama"));
  ModelConfig deeper = config_;
  deeper.decoder.layers = 3;
  EXPECT_EQ(CheckError(*BuildModel(deeper, at::kFloat)),
            (folder_ / "model.safetensors").string() +
                ": tensor 'model.layers.2.input_layernorm.weight' is missing, which the model's "
                "config.json asks for");
}

TEST_F(WeightsTest, NamesATensorOfAnotherShape) {
  Save(*LoadGoldenModel("llama"));
  ModelConfig larger = config_;
  larger.decoder.vocabulary = 400;
  EXPECT_EQ(CheckError(*BuildModel(larger, at::kFloat)),
            (folder_ / "model.safetensors").string() +
                ": tensor 'model.embed_tokens.weight' has shape [320, 32], expected [400, 32]");
}

TEST_F(WeightsTest, ListsStoredTensorsThatTheModelLacks) {
  Save(*LoadGoldenModel("llama"));
  ModelConfig tied = config_;
  tied.decoder.tied_head = true;
  const auto unused = WeightReader::Open(folder_).value()->Check(*BuildModel(tied, at::kFloat));
  EXPECT_EQ(unused.value(), std::vector<std::string>{"lm_head.weight"});
}

TEST_F(WeightsTest, ReadsABaseModelSavedWithoutTheFirstPartOfItsNames) {
  const auto model = BuildModel(ReadModelConfig("gpt2-demo").value(), at::kFloat);
  std::vector<checkpoint::SafetensorsDeclaration> declared;
  for (const auto& block : model->blocks()) {
    for (const auto& item : block->named_parameters()) {
      const std::string name = block->FullName(item.key()).substr(sizeof("transformer"));
      declared.push_back({name, at::kFloat, item.value().sizes().vec()});
    }
  }
  auto writer =
      checkpoint::SafetensorsWriter::Create(folder_ / "model.safetensors", declared).value();
  for (const auto& d : declared) ASSERT_TRUE(writer->Write(d.name, at::zeros(d.shape)).ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_TRUE(WeightReader::Open(folder_).value()->Check(*model).ok());
}

TEST_F(WeightsTest, AFolderWithoutWeightsHasNoReader) {
  EXPECT_EQ(WeightReader::Open(folder_).value(), nullptr);
  EXPECT_EQ(WeightReader::Open("").value(), nullptr);
}

// Nobody who has weights in a folder is to train random ones in silence.
TEST_F(WeightsTest, AFolderWithWeightsThatAreNotReadIsRefused) {
  for (const char* name :
       {"model-00001-of-00002.safetensors", "model.safetensors.incomplete", "Model.safetensors",
        "model.fp16.safetensors", "consolidated.safetensors", "pytorch_model.safetensors",
        "tf_model.h5", "flax_model.msgpack", "model.Q4_K_M.gguf", "model.ckpt.index"}) {
    std::ofstream(folder_ / name) << "x";
    EXPECT_THAT(WeightReader::Open(folder_).status().message(),
                HasSubstr(std::string(" has ") + name + ", and neither model.safetensors nor"));
    fs::remove(folder_ / name);
  }
  for (const char* name : {"pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json",
                           "consolidated.00.pth", "model.pt"}) {
    std::ofstream(folder_ / name) << "x";
    EXPECT_THAT(WeightReader::Open(folder_).status().message(),
                HasSubstr(std::string(name) + ", a pickle"));
    fs::remove(folder_ / name);
  }
  fs::create_symlink("blobs/nothing", folder_ / "model.safetensors");
  EXPECT_THAT(WeightReader::Open(folder_).status().message(),
              HasSubstr("model.safetensors: No such file or directory"));
  fs::remove(folder_ / "model.safetensors");
  for (const char* name : {"tokenizer.json", "training_args.bin", "optimizer.pt", "corpus.bin"}) {
    std::ofstream(folder_ / name) << "x";
  }
  EXPECT_EQ(WeightReader::Open(folder_).value(), nullptr);
}

TEST_F(WeightsTest, RefusesPicklesAndIndexesThatLeaveTheFolder) {
  std::ofstream(folder_ / "pytorch_model.bin") << "x";
  EXPECT_THAT(WeightReader::Open(folder_).status().message(),
              HasSubstr("pytorch_model.bin, a pickle, which is never executed"));
  std::ofstream(folder_ / "model.safetensors.index.json")
      << R"({"weight_map": {"a": "../model.safetensors"}})";
  EXPECT_THAT(WeightReader::Open(folder_).status().message(),
              HasSubstr("weight_map['a'] is not the name of a file of this folder"));
  std::ofstream(folder_ / "model.safetensors.index.json") << "{}";
  EXPECT_THAT(WeightReader::Open(folder_).status().message(), HasSubstr("no JSON object"));
}

}  // namespace
}  // namespace ds::models
