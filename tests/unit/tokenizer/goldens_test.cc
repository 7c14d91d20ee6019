// Every tokenizer of goldens/ against what Hugging Face's library makes of the same texts: ids,
// offsets, type ids and decoded text. Made by scripts/goldens/make_tokenizer_goldens.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/base/files.h"
#include "runtime/tokenizer/file/read_tokenizer.h"
#include "tests/places.h"

namespace ds::tokenizer {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(DS_SOURCE_DIR) / "tests/unit/tokenizer/goldens";

Json ReadJson(const fs::path& path) { return Json::parse(*ReadFile(path)); }

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens)) {
    const std::string name = entry.path().filename().string();
    const std::size_t end = name.find(".tokenizer.json");
    if (end != std::string::npos) names.push_back(name.substr(0, end));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Offsets as the goldens have them: begin and end of each token, in characters.
std::vector<std::uint32_t> InCharacters(std::string_view text, const std::vector<Span>& spans) {
  std::vector<std::uint32_t> before(text.size() + 1, 0);  // by byte
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++count;
    before[i + 1] = count;
  }
  std::vector<std::uint32_t> positions;
  for (const Span& span : spans) {
    positions.push_back(before[span.begin]);
    positions.push_back(before[span.end]);
  }
  return positions;
}

class GoldensTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto read = ReadTokenizer(kGoldens / (GetParam() + ".tokenizer.json"));
    ASSERT_TRUE(read.ok()) << read.status().message();
    tokenizer_.emplace(*std::move(read));
    encoder_.emplace(*tokenizer_);
    texts_ = ReadJson(kGoldens / "texts.json");
    cases_ = ReadJson(kGoldens / (GetParam() + ".cases.json"));
  }

  std::optional<Tokenizer> tokenizer_;
  std::optional<Encoder> encoder_;
  Json texts_, cases_;
};

TEST_P(GoldensTest, IdsAndOffsetsAreThoseOfHuggingFace) {
  ASSERT_EQ(texts_["texts"].size(), cases_["texts"].size());
  for (std::size_t i = 0; i < texts_["texts"].size(); ++i) {
    const auto text = texts_["texts"][i].get<std::string>();
    SCOPED_TRACE(Json(text).dump());
    const Json& expected = cases_["texts"][i];
    const auto encoding = encoder_->Encode(text, {.offsets = true});
    ASSERT_TRUE(encoding.ok()) << encoding.status().message();
    EXPECT_EQ(encoding->ids, expected["ids"].get<std::vector<std::uint32_t>>());
    EXPECT_EQ(encoding->type_ids, expected["types"].get<std::vector<std::uint32_t>>());
    EXPECT_EQ(InCharacters(text, encoding->offsets),
              expected["offsets"].get<std::vector<std::uint32_t>>());
    // Without offsets other code runs, for the same ids.
    const auto ids_only = encoder_->Encode(text);
    ASSERT_TRUE(ids_only.ok());
    EXPECT_EQ(ids_only->ids, encoding->ids);
    EXPECT_THAT(ids_only->offsets, ::testing::IsEmpty());
  }
}

TEST_P(GoldensTest, DecodedTextIsThatOfHuggingFace) {
  for (std::size_t i = 0; i < texts_["texts"].size(); ++i) {
    const Json& expected = cases_["texts"][i];
    SCOPED_TRACE(texts_["texts"][i].dump());
    const auto ids = expected["ids"].get<std::vector<std::uint32_t>>();
    EXPECT_EQ(*tokenizer_->Decode(ids), expected["decoded"].get<std::string>());
    EXPECT_EQ(*tokenizer_->Decode(ids, true), expected["plain"].get<std::string>());
  }
}

TEST_P(GoldensTest, PairsAreThoseOfHuggingFace) {
  for (std::size_t i = 0; i < texts_["pairs"].size(); ++i) {
    const Json& pair = texts_["pairs"][i];
    const auto encoding =
        encoder_->EncodePair(pair[0].get<std::string>(), pair[1].get<std::string>());
    ASSERT_TRUE(encoding.ok()) << encoding.status().message();
    EXPECT_EQ(encoding->ids, cases_["pairs"][i]["ids"].get<std::vector<std::uint32_t>>());
    EXPECT_EQ(encoding->type_ids, cases_["pairs"][i]["types"].get<std::vector<std::uint32_t>>());
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldensTest, ::testing::ValuesIn(Names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ds::tokenizer
