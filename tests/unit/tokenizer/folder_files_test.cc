// Folders without a tokenizer.json: SentencePiece's tokenizer.model, whose ids have to be those of
// SentencePiece (goldens made by scripts/goldens/make_sentencepiece_goldens.py), and GPT-2's two
// files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/tokenizer/corpus/tokenizer_folder.h"
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
  ASSERT_TRUE(
      WriteFileAtomically(
          folder.path() / "tokenizer_config.json",
          R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "add_eos_token": true})")
          .ok());
  const auto tokenizer = ReadTokenizer(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  Encoder encoder(*tokenizer);
  const auto ids = encoder.Encode("Hello")->ids;
  EXPECT_EQ(ids.front(), *tokenizer->IdOf("<s>"));
  EXPECT_EQ(ids.back(), *tokenizer->IdOf("</s>"));
  EXPECT_EQ(*tokenizer->Decode(ids, true), "Hello");
}

TEST(Gpt2FilesTest, MatchTheirTokenizerJson) {
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
                        "'RobertaTokenizer' are not supported"));
}

TEST(SentencePieceFileTest, ClassesWithOtherIdsAreRefused) {
  const testing::TemporaryFolder folder;
  fs::copy_file(kUnitFolder / "sentencepiece_goldens/unigram.model",
                folder.path() / "tokenizer.model");
  for (const char* name : {"T5Tokenizer", "XLMRobertaTokenizer", "AlbertTokenizerFast"}) {
    const Json config = {{"tokenizer_class", name}};
    ASSERT_TRUE(WriteFileAtomically(folder.path() / "tokenizer_config.json", config.dump()).ok());
    EXPECT_THAT(ReadTokenizer(folder.path()).status().message(),
                HasSubstr("tokenizer_class: tokenizer.model of '" + std::string(name) +
                          "' is not supported"));
  }
  const Json llama = {{"tokenizer_class", "LlamaTokenizer"}};
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "tokenizer_config.json", llama.dump()).ok());
  EXPECT_THAT(ReadTokenizer(folder.path()).status().message(),
              HasSubstr("its model type is 1, and the Llama class has BPE"));
}

TEST(SideFilesTest, NamesInvalidTokens) {
  const testing::TemporaryFolder folder;
  fs::copy(kUnitFolder / "old_layouts/gpt2", folder.path(), fs::copy_options::recursive);
  const auto error = [&](const char* file, const char* text) {
    EXPECT_TRUE(WriteFileAtomically(folder.path() / file, text).ok());
    const std::string message = ReadTokenizer(folder.path()).status().message();
    fs::remove(folder.path() / file);
    return message;
  };
  EXPECT_THAT(
      error("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "a"}}})"),
      HasSubstr("tokenizer_config.json: added_tokens_decoder.x must be a token"));
  const char* const marked =
      R"({"added_tokens_decoder": {"1": {"content": "a", "special": "true"}}, "eos_token": "a"})";
  EXPECT_THAT(error("tokenizer_config.json", marked),
              HasSubstr("tokenizer_config.json: added_tokens_decoder.1 must be a token"));
  EXPECT_THAT(error("tokenizer_config.json", R"({"eos_token": {"content": "a", "special": "no"}})"),
              HasSubstr("tokenizer_config.json: eos_token must be a token"));
  EXPECT_THAT(error("added_tokens.json", R"({"<a>": 4294967656})"),
              HasSubstr("added_tokens.json: '<a>' must have an id, a whole number from 0 to"));
  fs::create_symlink("added_tokens.json", folder.path() / "added_tokens.json");
  EXPECT_THAT(ReadTokenizer(folder.path()).status().message(), HasSubstr("added_tokens.json: "));
  fs::remove(folder.path() / "added_tokens.json");
  EXPECT_THAT(error("tokenizer_config.json", R"({"additional_special_tokens": [7]})"),
              HasSubstr("tokenizer_config.json: additional_special_tokens must be a token"));
  EXPECT_THAT(error("tokenizer_config.json", R"({"split_special_tokens": true})"),
              HasSubstr("tokenizer_config.json: split_special_tokens true is not built"));
  EXPECT_THAT(error("added_tokens.json", R"({"<a>": "360"})"),
              HasSubstr("added_tokens.json: '<a>' must have an id"));
  EXPECT_THAT(error("special_tokens_map.json", R"({"additional_special_tokens": [null]})"),
              HasSubstr("special_tokens_map.json: additional_special_tokens must be a token"));
  EXPECT_THAT(
      error("tokenizer_config.json", R"({"eos_token": "\ud83d"})"),
      HasSubstr(
          "tokenizer_config.json: not valid JSON: line 1, column 16: \\ud83d is a lone surrogate"));
}

// transformers 5 lays these over the steps of tokenizer.json.
TEST(SideFilesTest, KeysThatChangeTheStepsOfATokenizerJsonAreRefused) {
  const testing::TemporaryFolder folder;
  fs::copy_file(kUnitFolder / "row_goldens/tokenizer.json", folder.path() / "tokenizer.json");
  const auto read = [&](const Json& config) {
    EXPECT_TRUE(WriteFileAtomically(folder.path() / "tokenizer_config.json", config.dump()).ok());
    return std::string(ReadTokenizer(folder.path()).status().message());
  };
  EXPECT_THAT(read({{"split_special_tokens", true}}), HasSubstr("split_special_tokens true"));
  EXPECT_THAT(read({{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", true}}),
              HasSubstr("tokenizer_config.json: add_prefix_space true, and tokenizer.json's"));
  EXPECT_EQ(read({{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", false}}), "");
  EXPECT_EQ(read({{"tokenizer_class", "LlamaTokenizer"}, {"add_prefix_space", true}}), "");
  EXPECT_EQ(read({{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", nullptr}}), "");
  EXPECT_EQ(read({{"tokenizer_class", "LlamaTokenizer"}, {"add_prefix_space", false}}), "");
  Json pipeline = Json::parse(ReadFile(folder.path() / "tokenizer.json").value());
  for (const char* scheme : {"first", "always", "never"}) {
    pipeline["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", scheme}};
    ASSERT_TRUE(WriteFileAtomically(folder.path() / "tokenizer.json", pipeline.dump()).ok());
    const auto refuses = HasSubstr("add_prefix_space false, and tokenizer.json writes the blank");
    const std::string llama =
        read({{"tokenizer_class", "LlamaTokenizerFast"}, {"add_prefix_space", false}});
    if (std::string(scheme) == "never") {
      EXPECT_THAT(llama, ::testing::Not(refuses));
    } else {
      EXPECT_THAT(llama, refuses) << scheme;
    }
    EXPECT_THAT(read({{"add_prefix_space", false}}), ::testing::Not(refuses));
  }
}

TEST(SideFilesTest, ATokenizerJsonWithTextsForTokensIsRefused) {
  const testing::TemporaryFolder folder;
  const auto error = [&](const Json& added) {
    const Json json = {
        {"added_tokens", added},
        {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", Json::array()}}}};
    EXPECT_TRUE(WriteFileAtomically(folder.path() / "tokenizer.json", json.dump()).ok());
    return std::string(ReadTokenizer(folder.path()).status().message());
  };
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "tokenizer_config.json",
                                  R"({"eos_token": "<s>", "bos_token": "<b>"})")
                  .ok());
  EXPECT_THAT(error({"<s>"}), HasSubstr("added_tokens[0] must be an object"));
  EXPECT_THAT(error({{{"content", "<s>"}, {"special", "true"}}}),
              HasSubstr("added_tokens[0].special must be true or false"));
}

TEST(TokenizerFolderTest, NestedWithoutEndIsRefused) {
  const testing::TemporaryFolder folder;
  fs::copy(kUnitFolder / "old_layouts/gpt2", folder.path(), fs::copy_options::recursive);
  const std::string deep =
      R"({"eos_token_id": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "config.json", deep).ok());
  EXPECT_THAT(ReadTokenizerFolder(folder.path()).status().message(),
              HasSubstr("config.json: the JSON is nested too deep"));
}

// Folders in old layouts with tokens that were added later, as transformers reads them (goldens
// made by scripts/goldens/make_old_tokenizer_goldens.py).
class OldLayoutTest : public ::testing::TestWithParam<std::string> {
 protected:
  static Json Cases() { return Json::parse(*ReadFile(kUnitFolder / "old_layouts/cases.json")); }
  void SetUp() override {
    golden_ = Cases()[GetParam()];
    const fs::path base = kUnitFolder / "old_layouts" / golden_["base"].get<std::string>();
    fs::copy(base, folder_.path(), fs::copy_options::recursive);
    for (const auto& [name, content] : golden_["files"].items()) {
      ASSERT_TRUE(WriteFileAtomically(folder_.path() / name, content.dump()).ok());
    }
  }
  const testing::TemporaryFolder folder_;
  Json golden_;
};

TEST_P(OldLayoutTest, IdsAreThoseOfTransformers) {
  const auto read = ReadTokenizerFolder(folder_.path());
  if (GetParam().ends_with("_gap")) {  // there, transformers gives a token another id than its file
    EXPECT_THAT(read.status().message(), HasSubstr("is the token"));
    return;
  }
  ASSERT_TRUE(read.ok()) << read.status().message();
  Encoder encoder(read->tokenizer);
  const Json texts = Cases()["texts"];
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    EXPECT_EQ(encoder.Encode(text)->ids, golden_["ids"][i].get<std::vector<std::uint32_t>>())
        << Json(text).dump();
    EXPECT_EQ(encoder.Encode(text, {.special_tokens = false})->ids,
              golden_["plain"][i].get<std::vector<std::uint32_t>>())
        << Json(text).dump();
  }
  for (const Json& id : golden_["special"]) EXPECT_TRUE(read->tokenizer.IsSpecial(id)) << id;
  ASSERT_TRUE(read->end_of_text.has_value());
  EXPECT_EQ(*read->end_of_text, golden_["end"]);
}

std::vector<std::string> OldLayouts() {
  std::vector<std::string> names;
  const Json cases = Json::parse(*ReadFile(kUnitFolder / "old_layouts/cases.json"));
  for (const auto& [name, golden] : cases.items()) {
    if (name != "texts") names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Folders, OldLayoutTest, ::testing::ValuesIn(OldLayouts()),
                         [](const auto& info) { return info.param; });

TEST(ReadTokenizerTest, NamesTheFilesThatAFolderNeeds) {
  const testing::TemporaryFolder folder;
  EXPECT_THAT(
      ReadTokenizer(folder.path()).status().message(),
      HasSubstr("has no tokenizer.json, no vocab.json with merges.txt and no tokenizer.model"));
}

}  // namespace
}  // namespace ds::tokenizer
