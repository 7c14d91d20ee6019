// What a tokenizer.json may not say, and how that is said: the file and the key are named.

#include "runtime/tokenizer/file/read_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::tokenizer {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Json SmallTokenizer() {
  return Json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 3, "content": "<s>", "special": true, "normalized": false}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

StatusOr<Tokenizer> Parse(const Json& json) {
  return ParseTokenizerJson(json.dump(), "tokenizer.json");
}

std::string TokenizerErrorOf(const Json& json) {
  const auto read = Parse(json);
  return read.ok() ? "" : read.status().message();
}

// Errors name the file, and say nothing in the words of a parser.
void ExpectPlainWords(const std::string& text) {
  const auto read = ParseTokenizerJson(text, "tokenizer.json");
  if (read.ok()) return;
  const std::string said(read.status().message());
  EXPECT_THAT(said, HasSubstr("tokenizer.json")) << text;
  for (const char* word : {"exception", "parse error", "std::", "syntax error"}) {
    EXPECT_THAT(said, Not(HasSubstr(word))) << text;
  }
}

// Puts a value of each type in the place of every value of a small file of every kind.
void ReplaceEach(const Json& whole, const Json::json_pointer& at) {
  for (const Json& other : {Json(), Json(true), Json(-7), Json(1e300), Json(""), Json("x"),
                            Json::array(), Json::object(), Json::array({1, "a"})}) {
    Json changed = whole;
    changed[at] = other;
    ExpectPlainWords(changed.dump());
  }
  const Json& here = whole[at];
  if (here.size() > 20) return;
  if (here.is_object()) {
    for (const auto& [key, value] : here.items()) ReplaceEach(whole, at / key);
  }
  for (std::size_t i = 0; here.is_array() && i < here.size(); ++i) ReplaceEach(whole, at / i);
}

TEST(DamagedTokenizerTest, IsDescribedInPlainWords) {
  const std::string small = SmallTokenizer().dump(1);
  for (std::size_t size = 0; size < small.size(); ++size) ExpectPlainWords(small.substr(0, size));
  EXPECT_THAT(
      ParseTokenizerJson(small.substr(0, 40), "tokenizer.json").status().message(),
      HasSubstr("tokenizer.json: not valid JSON: line 4, column 16: it ends inside a text"));
  ReplaceEach(SmallTokenizer(), Json::json_pointer());
  for (const char* name : {"bert", "llama3", "albert", "deepseek"}) {
    SCOPED_TRACE(name);
    Json whole = Json::parse(*ReadFile(std::string(DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/") +
                                       name + ".tokenizer.json"));
    whole["model"] = SmallTokenizer()["model"];
    ReplaceEach(whole, Json::json_pointer());
  }
}

struct BadFile {
  std::string patch;  // a JSON merge patch of the small tokenizer
  std::string error;
};

class BadFileTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadFileTest, NamesFileAndKey) {
  Json json = SmallTokenizer();
  json.merge_patch(Json::parse(GetParam().patch));
  EXPECT_THAT(TokenizerErrorOf(json), HasSubstr(GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadFileTest,
    ::testing::Values(
        BadFile{R"({"version": "2.0"})", "tokenizer.json: version must be 1.0, not '2.0'"},
        BadFile{R"({"model": null})", "tokenizer.json: model is missing"},
        BadFile{R"({"model": 3})", "tokenizer.json: model must be an object, not 3"},
        BadFile{R"({"model": {"type": "Neural"}})",
                "tokenizer.json: model.type: 'Neural' is not a supported model"},
        BadFile{R"({"model": {"vocab": {"a": -1}}})",
                "tokenizer.json: model.vocab.a must be an id, not -1"},
        BadFile{R"({"model": {"vocab": {"a": 4000000000}}})",
                "tokenizer.json: model.vocab is wrong: the token 'a' has the id 4000000000"},
        BadFile{R"({"model": {"merges": ["a"]}})",
                "tokenizer.json: model.merges[0] must be two tokens"},
        BadFile{R"({"model": {"merges": [["a", "c"]]}})",
                "tokenizer.json: model.merges are wrong: merge 1 needs the token 'c'"},
        BadFile{R"({"model": {"dropout": 0.1}})", "tokenizer.json: model.dropout makes ids random"},
        BadFile{R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Magic"}]}})",
                "tokenizer.json: normalizer.normalizers[0].type: 'Magic' is not a supported "
                "normalizer"},
        BadFile{R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAA="}})",
                "tokenizer.json: normalizer.precompiled_charsmap is damaged"},
        BadFile{R"({"pre_tokenizer": {"type": "UnicodeScripts"}})",
                "'UnicodeScripts' is not a supported pre-tokenizer"},
        BadFile{R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"},
                    "behavior": "Isolated", "invert": false}})",
                "tokenizer.json: pre_tokenizer.pattern.Regex: the pattern '(a' is not understood"},
        BadFile{R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a&&b]"},
                    "behavior": "Isolated", "invert": false}})",
                "an intersection of sets at byte 2, which dsrun does not support"},
        BadFile{R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"},
                    "behavior": "Shuffled", "invert": false}})",
                "pre_tokenizer.behavior is not supported: 'Shuffled'"},
        BadFile{R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "__"}})",
                "pre_tokenizer.replacement must be one character, not '__'"},
        BadFile{R"({"post_processor": {"type": "Stamp"}})",
                "'Stamp' is not a supported post-processor"},
        BadFile{R"({"post_processor": {"type": "TemplateProcessing", "pair": [],
                    "special_tokens": {}, "single": [{"SpecialToken": {"id": "x", "type_id": 0}}]}})",
                "tokenizer.json: post_processor.special_tokens.x is missing"},
        BadFile{R"({"post_processor": {"type": "TemplateProcessing", "pair": [],
                    "special_tokens": {}, "single": [{"Sequence": {"id": "B", "type_id": 0}}]}})",
                "post_processor.single[0].Sequence.id must be A"},
        BadFile{R"({"decoder": {"type": "Enigma"}})", "'Enigma' is not a supported decoder"},
        BadFile{R"({"truncation": {"max_length": 3, "strategy": "Any"}})",
                "tokenizer.json: truncation.strategy must be LongestFirst"},
        BadFile{R"({"added_tokens": [{"id": 9, "content": "<s>"}]})",
                "tokenizer.json: added_tokens[0].id is 9, but '<s>' is the token 3"}));

TEST(ReadTokenizerTest, LocatesErrorsInJson) {
  const auto read = ParseTokenizerJson("{\"model\": ", "x/tokenizer.json");
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.status().message(), StartsWith("x/tokenizer.json: "));
  EXPECT_THAT(ParseTokenizerJson("[]", "f").status().message(),
              HasSubstr("must hold a JSON object"));
}

TEST(ReadTokenizerTest, RefusesJsonThatIsNestedTooDeep) {
  const std::string deep(100000, '['), end(100000, ']');
  const auto tokenizer =
      ParseTokenizerJson(R"({"normalizer":)" + deep + end + "}", "tokenizer.json");
  EXPECT_THAT(tokenizer.status().message(),
              HasSubstr("tokenizer.json: the JSON is nested too deep"));
}

TEST(ReadTokenizerTest, ReadsAFolder) {
  const testing::TemporaryFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder.path() / "tokenizer.json", SmallTokenizer().dump()).ok());
  const auto read = ReadTokenizer(folder.path());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->id_limit(), 4u);
  EXPECT_EQ(read->IdOf("ab"), 2u);
  EXPECT_EQ(read->IdOf("<s>"), 3u);
  EXPECT_EQ(read->TokenOf(4), std::nullopt);
  EXPECT_TRUE(read->IsSpecial(3));
  EXPECT_FALSE(read->IsSpecial(2));
  EXPECT_EQ(ReadTokenizer(folder.path() / "none").status().code(), StatusCode::kNotFound);
}

TEST(EncoderTest, RefusesInvalidUtf8) {
  const auto tokenizer = Parse(SmallTokenizer());
  Encoder encoder(*tokenizer);
  for (const std::string& text : {std::string("ab\xFF"), std::string("ab\xC3"),
                                  std::string("ab\xED\xA0\x80"), std::string("ab\xC0\x80")}) {
    const auto encoding = encoder.Encode(text);
    ASSERT_FALSE(encoding.ok());
    EXPECT_EQ(encoding.status().message(), "byte 2 of the text is not UTF-8");
  }
  EXPECT_THAT(encoder.Encode("ab")->ids, ElementsAre(2));
}

TEST(EncoderTest, NeedsATokenForTheUnknown) {
  Json json = SmallTokenizer();
  json["model"]["unk_token"] = "<unk>";
  const auto tokenizer = Parse(json);
  Encoder encoder(*tokenizer);
  EXPECT_THAT(encoder.Encode("abc").status().message(),
              HasSubstr("the unknown token '<unk>' is not in the vocabulary"));
}

TEST(EncoderTest, TruncatesAsTheFileSays) {
  Json json = SmallTokenizer();
  json["truncation"] = {
      {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}, {"direction", "Left"}};
  const auto tokenizer = Parse(json);
  Encoder encoder(*tokenizer);
  EXPECT_THAT(encoder.Encode("aabab")->ids, ElementsAre(0, 2, 2));
  EXPECT_THAT(encoder.Encode("baabab")->ids, ElementsAre(0, 2, 2));
  EXPECT_THAT(encoder.Encode("baabab", {.truncate = false})->ids, ElementsAre(1, 0, 2, 2));
  EXPECT_THAT(encoder.EncodePair("aaa", "b")->ids, ElementsAre(0, 0, 1));
}

// One word of a megabyte is merged in n log n, as short ones are: by rank, then from the left.
TEST(EncoderTest, MergesLongWordsAsShortOnes) {
  Json json = SmallTokenizer();
  json["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"aa", 2}, {"ab", 4}, {"aab", 5}, {"aaaa", 6}};
  json["model"]["merges"] = {"a b", "a a", "a ab", "aa aa"};
  json["added_tokens"] = Json::array();
  const auto tokenizer = Parse(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::string part = "aaaabaab";
  std::string text;
  while (text.size() < (1 << 20)) text += part;
  Encoder encoder(*tokenizer);
  const auto short_ids = encoder.Encode(part)->ids;
  std::vector<std::uint32_t> expected;
  for (std::size_t i = 0; i < text.size() / part.size(); ++i) {
    expected.insert(expected.end(), short_ids.begin(), short_ids.end());
  }
  EXPECT_EQ(encoder.Encode(text)->ids, expected);
}

}  // namespace
}  // namespace ds::tokenizer
