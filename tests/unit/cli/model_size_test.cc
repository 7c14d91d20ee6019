#include "runtime/plan/estimate/model_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr char kGoldens[] = DS_SOURCE_DIR "/tests/unit/cli/goldens/model_sizes.json";

TEST(SizeOfConfigTest, MatchesTheModelsOfTransformers) {
  std::ifstream file(kGoldens);
  const Json goldens = Json::parse(file);
  EXPECT_GT(goldens.size(), 10u);
  for (const Json& golden : goldens) {
    SCOPED_TRACE(golden.dump());
    const auto size = plan::SizeOfConfig(golden[0]);
    ASSERT_TRUE(size.ok()) << size.status().message();
    EXPECT_EQ(size->params, golden[1]);
    EXPECT_EQ(size->largest_layer_params, golden[2]);
  }
}

TEST(SizeOfConfigTest, NamesTheKeyThatIsWrong) {
  const auto error = [](const Json& config) {
    return plan::SizeOfConfig(config).status().message();
  };
  EXPECT_THAT(error({{"model_type", "gpt2"}, {"n_embd", "768"}}),
              HasSubstr("'n_embd' must be a whole number from 1 to 1073741824, not \"768\""));
  EXPECT_THAT(error({{"model_type", "gpt2"}, {"n_layer", 0}}), HasSubstr("'n_layer'"));
  EXPECT_THAT(error({{"model_type", "llama"}, {"tie_word_embeddings", 1}}),
              HasSubstr("'tie_word_embeddings' must be true or false, not 1"));
  EXPECT_THAT(error({{"model_type", "llama"}, {"vocab_size", 1 << 30}, {"hidden_size", 1 << 30}}),
              HasSubstr("more than 1e15 parameters"));
  EXPECT_THAT(error({{"model_type", "mixtral"},
                     {"num_local_experts", 1 << 16},
                     {"intermediate_size", 1 << 30},
                     {"hidden_size", 1 << 30}}),
              HasSubstr("more than 1e15 parameters"));
  EXPECT_THAT(error({{"model_type", "bert"}}), HasSubstr("model_type \"bert\" is not supported"));
  EXPECT_THAT(error(Json::array()), HasSubstr("not a JSON object"));
}

class ReadModelSizeTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, text).ok());
  }
  // A file of tensors: (name, dtype, elements) with `bytes` of data each.
  void WriteTensors(const std::string& name, const std::string& header, std::size_t data_bytes) {
    const std::uint64_t length = header.size();
    Write(name, std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
                    std::string(data_bytes, '\0'));
  }
  std::string Error() { return plan::ReadModelSize(folder_.path()).status().message(); }

  const ds::testing::TemporaryFolder folder_;
};

constexpr char kTwoTensors[] =
    R"({"emb.weight":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},
        "lm_head.weight":{"dtype":"F32","shape":[3,2],"data_offsets":[24,48]}})";

TEST_F(ReadModelSizeTest, AKnownFamilyNeedsNoWeights) {
  Write("config.json", R"({"model_type": "gpt2"})");
  EXPECT_EQ(plan::ReadModelSize(folder_.path())->params, 124439808);
  EXPECT_EQ(plan::ReadModelSize(folder_.path() / "config.json")->largest_layer_params, 38597376);
}

TEST_F(ReadModelSizeTest, AnyOtherIsCountedFromItsWeights) {
  WriteTensors("model.safetensors", kTwoTensors, 48);
  EXPECT_EQ(plan::ReadModelSize(folder_.path())->params, 12);
  Write("config.json", R"({"model_type": "new", "tie_word_embeddings": true})");
  EXPECT_EQ(plan::ReadModelSize(folder_.path())->params, 6);
  EXPECT_THAT(plan::ReadModelSize(folder_.path() / "config.json").status().message(),
              HasSubstr("config.json: model_type \"new\" is not supported"));
}

TEST_F(ReadModelSizeTest, ModulesOfShardedWeightsAreAddedUp) {
  WriteTensors("a.safetensors",
               R"({"x.0.bias":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},
                   "x.steps":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})",
               16);
  WriteTensors("b.safetensors",
               R"({"x.0.weight":{"dtype":"F8_E4M3","shape":[4,5],"data_offsets":[0,20]},
                   "x.rotary_emb.inv_freq":{"dtype":"F32","shape":[1],"data_offsets":[20,24]}})",
               24);
  Write("model.safetensors.index.json",
        R"({"weight_map": {"x.0.bias": "a.safetensors", "x.0.weight": "b.safetensors"}})");
  const auto size = plan::ReadModelSize(folder_.path());
  ASSERT_TRUE(size.ok()) << size.status().message();
  EXPECT_EQ(size->params, 24);
  EXPECT_EQ(size->largest_layer_params, 24);
}

TEST_F(ReadModelSizeTest, NamesMissingOrDamagedFiles) {
  EXPECT_THAT(Error(), HasSubstr("there are no safetensors files"));
  Write("config.json", "{");
  EXPECT_THAT(Error(), HasSubstr("config.json: not valid JSON: line 1, column 2: it ends"));
  fs::remove(folder_.path() / "config.json");
  Write("model.safetensors.index.json", R"({"weight_map": {"x": "../a.safetensors"}})");
  EXPECT_THAT(Error(), HasSubstr("weight_map['x'] is not the name of a file of this folder"));
  WriteTensors("model.safetensors", kTwoTensors, 47);
  EXPECT_THAT(Error(), HasSubstr("model.safetensors: the file is truncated"));
  WriteTensors("model.safetensors",
               R"({"q.weight":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})", 4);
  EXPECT_THAT(Error(), HasSubstr("'q.weight' has dtype I8; quantized weights cannot be counted"));
}

}  // namespace
}  // namespace ds::cli
