// What a model learns of a conversation, against siblings of the templates that mark it with
// {% generation %}. Goldens are made by scripts/goldens/make_span_goldens.py.

#include "runtime/tokenizer/corpus/assistant_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/tokenizer/corpus/written_chat.h"
#include "tests/places.h"
#include "tests/support/span_goldens.h"

namespace ds::tokenizer {
namespace {

using ::testing::HasSubstr;
using OrderedJson = nlohmann::ordered_json;

const std::filesystem::path kSpanGoldens =
    std::filesystem::path(DS_SOURCE_DIR) / "tests/unit/tokenizer/span_goldens";

// The words of each span, with the index of its message.
std::vector<std::pair<std::size_t, std::string>> TextsInLoss(const std::string& source,
                                                             const OrderedJson& messages) {
  const TokenizerFolder folder = testing::SpanGoldens(kSpanGoldens).FolderWith(source);
  const ChatOptions options{.variables = folder.chat_variables, .now = {}, .limits = {}};
  const auto chat = folder.chat_template->Render(messages, options);
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  const auto found = FindAssistant(folder, messages, options, *chat);
  EXPECT_TRUE(found.ok()) << found.status().message();
  std::vector<std::pair<std::size_t, std::string>> in_loss;
  for (const AssistantSpan& each : *found) {
    in_loss.emplace_back(each.message,
                         chat->text.substr(each.span.begin, each.span.end - each.span.begin));
  }
  return in_loss;
}

OrderedJson Message(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

TEST(AssistantSpansTest, AreThoseOfGenerationBlocks) {
  const testing::SpanGoldens goldens(kSpanGoldens);
  EXPECT_GE(goldens.golden()["templates"].size(), 12u);
  EXPECT_GE(goldens.CompareAll(), 120);
}

TEST(AssistantSpansTest, BlocksKnowTheirMessage) {
  const std::string source =
      "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content }}"
      "{% endgeneration %}{% else %}U:{{ m.content }}{% endif %}{% endfor %}";
  const OrderedJson messages =
      OrderedJson::array({Message("user", "a"), Message("assistant", "b"), Message("user", "c"),
                          Message("assistant", "d")});
  EXPECT_THAT(TextsInLoss(source, messages),
              ::testing::ElementsAre(std::pair{1u, "b"}, std::pair{3u, "d"}));
}

TEST(AssistantSpansTest, RefusesSpansThatCannotBeFound) {
  const testing::SpanGoldens goldens(kSpanGoldens);
  const OrderedJson messages =
      OrderedJson::array({Message("user", "Hello?"), Message("assistant", "Hi.")});
  for (const auto& [name, refused] : goldens.golden()["refused"].items()) {
    const TokenizerFolder folder = goldens.FolderWith(refused[0].get<std::string>());
    const auto chat = folder.chat_template->Render(messages, {});
    ASSERT_TRUE(chat.ok()) << name << chat.status().message();
    const auto found = FindAssistant(folder, messages, {}, *chat);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(found.status().code(), StatusCode::kUnimplemented);
    EXPECT_THAT(found.status().message(),
                HasSubstr("message 2, the assistant's: the chat template " +
                          refused[1].get<std::string>()));
  }
}

// Words that an operation on texts has made are still words of their message.
TEST(AssistantSpansTest, OperationsKeepTheOrigin) {
  const OrderedJson messages =
      OrderedJson::array({Message("user", " one two "), Message("assistant", "x")});
  for (const std::string words : {"u.strip()",
                                  "u | trim",
                                  "u.split(' ')[1]",
                                  "u.split(' ') | join",
                                  "u[1:3]",
                                  "u[1]",
                                  "u.replace('o', 'e')",
                                  "'a' ~ u",
                                  "'a' + u",
                                  "u * 2",
                                  "u | upper",
                                  "u | tojson",
                                  "{'k': [u]} | tojson",
                                  "[u] | join(',')",
                                  "'-'.join(['a', u])",
                                  "'b'.replace('b', u)",
                                  "u | list | last",
                                  "(u | list)[2]",
                                  "[u, 'a'] | map('trim') | list | first",
                                  "'a'.ljust(5, u[1])",
                                  "u.splitlines()[0]",
                                  "shout(u)",
                                  "(u if true)",
                                  "u | default('')",
                                  "u | indent",
                                  "messages[0] | tojson",
                                  "messages[0].items() | list | string",
                                  "(messages | map(attribute='content') | list)[0]"}) {
    const std::string source =
        "{% macro shout(t) %}{{ t | upper }}{% endmacro %}{% set u = messages[0].content %}"
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ " +
        words + " }}{{ m.content }}{% endif %}{% endfor %}";
    const TokenizerFolder folder = testing::SpanGoldens(kSpanGoldens).FolderWith(source);
    const auto chat = folder.chat_template->Render(messages, {});
    ASSERT_TRUE(chat.ok()) << words << ": " << chat.status().message();
    EXPECT_THAT(FindAssistant(folder, messages, {}, *chat).status().message(),
                HasSubstr("words of other messages"))
        << words;
  }
}

// What is asked of another message without being written is no word of it.
TEST(AssistantSpansTest, QuestionsAboutOtherMessagesAreFine) {
  const std::string source =
      "{% for m in messages %}{% set before = messages[loop.index0 - 1] %}"
      "{% if m.role == 'assistant' %}{{ '!' if 'o' in before.content else '?' }}"
      "{{ before.content | length }}{{ before.role }}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_THAT(
      TextsInLoss(source, OrderedJson::array({Message("user", "one"), Message("assistant", "x")})),
      ::testing::ElementsAre(std::pair{1u, "!3userx"}));
}

// DeepSeek-V3's template adds arguments to texts.
TEST(AssistantSpansTest, ArgumentsAreTextForTemplatesThatAddThem) {
  const std::string source =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name + ' ' + "
      "c.function.arguments }}{% else %}{{ m.content }}{% endfor %}{% endfor %}";
  OrderedJson call = Message("assistant", "");
  call["tool_calls"] = OrderedJson::parse(
      R"([{"type": "function", "function": {"name": "f", "arguments": {"a": [1, "\u00e9"]}}}])");
  const ChatRow row{.messages = OrderedJson::array({Message("user", "x"), call}),
                    .in_loss = {true, true}};
  const auto chat = WriteChat(row, testing::SpanGoldens(kSpanGoldens).FolderWith(source));
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ(chat->full.text, "xf {\"a\": [1, \"\u00e9\"]}");
}

// The assistant may speak first.
TEST(AssistantSpansTest, FirstMessageHasItsHeader) {
  const std::string source =
      "{% for m in messages %}{{ (bos_token if loop.first else '') ~ '<|' ~ m.role ~ '|>' ~ "
      "m.content ~ '<|end|>' }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
  EXPECT_THAT(
      TextsInLoss(source, OrderedJson::array({Message("assistant", "hi"), Message("user", "x"),
                                              Message("assistant", "y")})),
      ::testing::ElementsAre(std::pair{0u, "hi<|end|>"}, std::pair{2u, "y<|end|>"}));
}

}  // namespace
}  // namespace ds::tokenizer
