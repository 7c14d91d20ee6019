// Folders without a tokenizer.json: SentencePiece's tokenizer.model, whose ids have to be those of
// SentencePiece (goldens made by scripts/goldens/make_sentencepiece_goldens.py), and GPT-2's two
// files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/tokenizer/file/read_tokenizer.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::tokenizer {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kUnitFolder = fs::path(DS_SOURCE_DIR) / "tests/unit/tokenizer";

class SentencePieceTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SentencePieceTest, IdsAreThoseOfSentencePiece) {
  const testing::TemporaryFolder folder;
  fs::copy_file(kUnitFolder / "sentencepiece_goldens" / (GetParam() + ".model"),
                folder.path() / "tokenizer.model");
  const auto tokenizer = ReadTokenizer(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  Encoder encoder(*tokenizer);
  const Json cases = Json::parse(*ReadFile(kUnitFolder / "sentencepiece_goldens/cases.json"));
  for (std::size_t i = 0; i < cases["texts"].size(); ++i) {
    const auto text = cases["texts"][i].get<std::string>();
    const auto encoding = encoder.Encode(text, {.offsets = true});
    ASSERT_TRUE(encoding.ok()) << encoding.status().message();
    for (const Span& span : encoding->offsets) {
      EXPECT_LE(span.begin, span.end) << Json(text).dump();
      EXPECT_LE(span.end, text.size()) << Json(text).dump();
    }
    EXPECT_EQ(encoding->ids, cases[GetParam()][i].get<std::vector<std::uint32_t>>())
        << Json(text).dump();
    // SentencePiece writes an unknown piece as two question marks, Hugging Face as the token.
    if (std::count(encoding->ids.begin(), encoding->ids.end(), 0) > 0) continue;
    EXPECT_EQ(*tokenizer->Decode(encoding->ids), cases[GetParam() + "_decoded"][i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceTest,
                         ::testing::Values("bpe_bytes", "bpe", "unigram", "unigram_suffix"));

TEST(SentencePieceFileTest, DamageIsNamedAndNeverRead) {
  const testing::TemporaryFolder folder;
  const std::string whole = *ReadFile(kUnitFolder / "sentencepiece_goldens/unigram.model");
  for (std::size_t size = 0; size < whole.size(); size += 97) {
    ASSERT_TRUE(WriteFileAtomically(folder.path() / "tokenizer.model", whole.substr(0, size)).ok());
    const auto read = ReadTokenizer(folder.path());
    if (read.ok()) continue;  // a cut between two fields leaves a smaller model
    EXPECT_THAT(read.status().message(), HasSubstr("tokenizer.model: "));
  }
}

TEST(SentencePieceFileTest, TheConfigSaysHowTextsBeginAndEnd) {
  const testing::TemporaryFolder folder;
  fs::copy_file(kUnitFolder / "sentencepiece_goldens/bpe_bytes.model",
                folder.path() / "tokenizer.model");
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "tokenizer_config.json",
                                  R"({"tokenizer_class": "LlamaTokenizer", "add_eos_token": true})")
                  .ok());
  const auto tokenizer = ReadTokenizer(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  Encoder encoder(*tokenizer);
  const auto ids = encoder.Encode("Hello")->ids;
  EXPECT_EQ(ids.front(), *tokenizer->IdOf("<s>"));
  EXPECT_EQ(ids.back(), *tokenizer->IdOf("</s>"));
  EXPECT_EQ(*tokenizer->Decode(ids, true), "Hello");
}

TEST(Gpt2FilesTest, AreWhatTheirTokenizerJsonIs) {
  const testing::TemporaryFolder folder;
  const fs::path golden = kUnitFolder / "goldens/gpt2.tokenizer.json";
  const Json model = Json::parse(*ReadFile(golden))["model"];
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : model["merges"]) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "vocab.json", model["vocab"].dump()).ok());
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "merges.txt", merges).ok());
  const auto ours = ReadTokenizer(folder.path());
  ASSERT_TRUE(ours.ok()) << ours.status().message();
  const auto expected = ReadTokenizer(golden);
  Encoder encoder(*ours), expected_encoder(*expected);
  const Json texts = Json::parse(*ReadFile(kUnitFolder / "goldens/texts.json"))["texts"];
  for (const Json& text : texts) {
    EXPECT_EQ(encoder.Encode(text.get<std::string>())->ids,
              expected_encoder.Encode(text.get<std::string>())->ids);
  }
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "tokenizer_config.json",
                                  R"({"tokenizer_class": "RobertaTokenizer"})")
                  .ok());
  EXPECT_THAT(ReadTokenizer(folder.path()).status().message(),
              HasSubstr("tokenizer_config.json: tokenizer_class: vocab.json and merges.txt of "
                        "'RobertaTokenizer' are none that dsrun knows"));
}

TEST(ReadTokenizerTest, SaysWhichFilesAFolderNeeds) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT(
      ReadTokenizer(folder.path()).status().message(),
      HasSubstr("has no tokenizer.json, no vocab.json with merges.txt and no tokenizer.model"));
}

}  // namespace
}  // namespace ds::tokenizer
