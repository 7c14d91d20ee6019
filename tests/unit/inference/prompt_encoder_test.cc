#include "runtime/inference/prompt_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/tokenizer/file/read_tokenizer.h"
#include "tests/places.h"

namespace ds::inference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

tokenizer::TokenizerFolder ReadGolden(const std::string& name) {
  return {tokenizer::ReadTokenizer(DS_SOURCE_DIR "/tests/unit/tokenizer/goldens/" + name +
                                   ".tokenizer.json")
              .value(),
          {},
          {},
          Json::object()};
}

std::vector<std::int64_t> IdsOf(const tokenizer::TokenizerFolder& folder, const std::string& text,
                                bool special_tokens) {
  tokenizer::Encoder encoder(folder.tokenizer);
  const auto ids = encoder.Encode(text, {.special_tokens = special_tokens}).value().ids;
  return {ids.begin(), ids.end()};
}

TEST(PromptEncoderTest, WithoutATokenizerBytesAreTokens) {
  PromptEncoder encoder(nullptr);
  EXPECT_THAT(encoder.Encode("a\u00e9").value(), ElementsAre('a', 0xC3, 0xA9));
  EXPECT_THAT(encoder.Encode("").status().message(), HasSubstr("no token"));
}

TEST(PromptEncoderTest, ATextGetsTheTokenizersSpecialTokens) {
  const tokenizer::TokenizerFolder folder = ReadGolden("llama2");
  PromptEncoder encoder(&folder);
  const auto ids = encoder.Encode("hello there").value();
  EXPECT_EQ(ids, IdsOf(folder, "hello there", true));
  EXPECT_NE(ids, IdsOf(folder, "hello there", false));
}

TEST(PromptEncoderTest, AConversationIsWrittenByItsTemplateUpToTheAnswer) {
  tokenizer::TokenizerFolder folder = ReadGolden("llama2");
  const Json messages = {{{"role", "user"}, {"content", "hi"}}};
  {
    PromptEncoder encoder(&folder);
    EXPECT_THAT(encoder.Encode(messages).status().message(), HasSubstr("needs a chat template"));
  }
  folder.chat_template =
      tokenizer::ChatTemplate::Parse(
          "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
          "{% if add_generation_prompt %}[assistant]{% endif %}")
          .value();
  folder.chat_variables = {{"bos_token", "<s>"}};
  PromptEncoder encoder(&folder);
  EXPECT_EQ(encoder.Encode(messages).value(), IdsOf(folder, "<s>[user] hi [assistant]", false));
  folder.chat_template = tokenizer::ChatTemplate::Parse("{{ mode }} {{ tools | tojson }}").value();
  const Json prompt = {{"messages", messages},
                       {"variables", {{"mode", "brief"}, {"tools", {{{"name", "f"}}}}}}};
  EXPECT_EQ(encoder.Encode(prompt).value(), IdsOf(folder, "brief [{\"name\": \"f\"}]", false));
}

}  // namespace
}  // namespace ds::inference
