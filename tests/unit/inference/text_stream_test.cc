// Text leaves in whole characters, whatever tokens cut.

#include "runtime/inference/text_stream.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer/file/read_tokenizer.h"
#include "tests/places.h"

namespace ds::inference {
namespace {

constexpr char kText[] = "na\u00efve caf\u00e9 \u65e5\u672c\u8a9e \U0001F642\U0001F680 end";

std::string GoldenTokenizer(const std::string& name) {
  return DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/" + name + ".tokenizer.json";
}

TEST(TextStreamTest, BytesWaitForTheirCharacter) {
  TextStream stream(nullptr);
  EXPECT_EQ(stream.Add('a').value(), "a");
  EXPECT_EQ(stream.Add(300).value(), "");  // no byte
  EXPECT_EQ(stream.Add(0xE2).value(), "");
  EXPECT_EQ(stream.Add(0x82).value(), "");
  EXPECT_EQ(stream.Add(0xAC).value(), "\u20ac");
  EXPECT_EQ(stream.Add(0xF0).value(), "");
  EXPECT_EQ(stream.Finish().value(), "\uFFFD");
  EXPECT_EQ(stream.Text().value(), "a\u20ac\uFFFD");
}

TEST(TextStreamTest, ShowsIncompleteCharactersWithTheNextOne) {
  TextStream stream(nullptr);
  EXPECT_EQ(stream.Add(0xFF).value(), "");
  EXPECT_EQ(stream.Add('b').value(),
            "\uFFFD"
            "b");
}

class TokenizersStream : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizersStream, PiecesAreCharactersAndTogetherTheText) {
  const tokenizer::Tokenizer tokenizer =
      tokenizer::ReadTokenizer(GoldenTokenizer(GetParam())).value();
  tokenizer::Encoder encoder(tokenizer);
  const auto ids = encoder.Encode(kText, {.special_tokens = false}).value().ids;
  TextStream stream(&tokenizer);
  std::string shown;
  bool held_back = false;
  for (const std::uint32_t id : ids) {
    const std::string piece = stream.Add(id).value();
    EXPECT_EQ(ValidUtf8Prefix(piece), piece.size());
    EXPECT_EQ(piece.find("\uFFFD"), std::string::npos);
    held_back = held_back || piece.empty();
    shown += piece;
  }
  shown += stream.Finish().value();
  EXPECT_TRUE(held_back) << "no token of this text ends in the middle of a character";
  EXPECT_EQ(shown, tokenizer.Decode(ids).value());
  EXPECT_NE(shown.find("\U0001F642\U0001F680 end"), std::string::npos) << shown;
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, TokenizersStream,
                         ::testing::Values("gpt2", "llama2", "llama3", "qwen2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ds::inference
