// Bad input of a model's folder and its tokens, which dsrun refuses before it starts ranks, and
// what only a rank can see. More of the former is in tests/procs/refused_job_test.cc. Each case: a
// sentence that names the thing, status 2, no stack trace.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class BadInputTest : public ::testing::Test {
 protected:
  BadInputTest() : model_(folder_.path() / "model") {
    fs::copy(DS_SOURCE_DIR "/tests/numerics/goldens/gpt2", model_, fs::copy_options::recursive);
    Write(folder_.path() / "tokens.bin", std::string(2000, '\1'));
    Write(folder_.path() / "ds.json", R"({"train_micro_batch_size_per_gpu": 1})");
  }

  static void Write(const fs::path& path, const std::string& content) {
    ASSERT_TRUE(WriteFileAtomically(path, content).ok());
  }

  // Replaces the first `from` in the model's `file`.
  void Replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = *ReadFile(model_ / file);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    Write(model_ / file, text.replace(at, from.size(), to));
  }

  ProgramResult Train(const char* unit = "--steps", const char* length = "1") const {
    return RunProgram(
        DsrunCommand(folder_.path() / "run",
                     {"--num_gpus", "2", "train", "--model", model_.string(), "--data",
                      (folder_.path() / "tokens.bin").string(), "--deepspeed_config",
                      (folder_.path() / "ds.json").string(), "--seq_len", "8", unit, length}));
  }

  void ExpectRefused(const std::string& what) const {
    ExpectSentence(Train(), what);
    EXPECT_FALSE(fs::exists(folder_.path() / "run")) << "dsrun knows it before it starts anything";
  }

  static void ExpectSentence(const ProgramResult& result, const std::string& what) {
    EXPECT_EQ(result.status, 2) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_THAT(result.err, Not(HasSubstr("frame #"))) << "a stack trace is no sentence";
  }

  TemporaryFolder folder_;
  fs::path model_;
};

TEST_F(BadInputTest, TheFolderItselfIsGood) { EXPECT_EQ(Train().status, 0); }

TEST_F(BadInputTest, MoreEpochsThanCanBeCountedAreNamed) {
  ExpectSentence(Train("--epochs", "9000000000000000000"), "--epochs 9000000000000000000 of ");
  EXPECT_FALSE(fs::exists(folder_.path() / "run")) << "dsrun has counted the samples";
}

TEST_F(BadInputTest, AValueThatIsNotFiniteIsNamed) {
  std::string weights = *ReadFile(model_ / "model.safetensors");
  weights.replace(weights.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));
  Write(model_ / "model.safetensors", weights);
  ExpectSentence(Train(), "it has values that are NaN or infinite");
  EXPECT_EQ(ReadJson(folder_.path() / "run" / "verdict.json")["exit_code"], 2) << "a rank reads";
}

TEST_F(BadInputTest, AMissingTensorIsNamed) {
  Replace("model.safetensors", "transformer.h.0.ln_1.bias", "transformer.h.0.ln_1.bios");
  ExpectRefused("transformer.h.0.ln_1.bias");
}

TEST_F(BadInputTest, AShapeMismatchIsNamed) {
  const auto config = ReadJson(model_ / "config.json");
  const std::string positions = "\"n_positions\": ";
  Replace("config.json", positions + config["n_positions"].dump(),
          positions + std::to_string(config["n_positions"].get<int>() * 2));
  ExpectRefused("transformer.wpe.weight");
}

TEST_F(BadInputTest, AModelKeyThatIsNotKnownIsNamed) {
  Replace("config.json", "{", R"({"secret_attention": true,)");
  ExpectRefused("secret_attention");
}

TEST_F(BadInputTest, ATokenOutsideTheVocabularyIsNamedWithItsPlace) {
  Write(folder_.path() / "tokens.bin", std::string(2000, '\xff'));
  ExpectRefused("65535");
}

}  // namespace
}  // namespace ds::testing
