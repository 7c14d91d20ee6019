// Chat templates of many families against what transformers makes of them, and the bounds that keep
// a template from doing harm. Goldens are made by scripts/goldens/make_chat_goldens.py.

#include "runtime/tokenizer/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/base/files.h"
#include "runtime/base/utf8.h"
#include "tests/places.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kChatGoldens = fs::path(DS_SOURCE_DIR) / "tests/unit/tokenizer/chat_goldens";

OrderedJson ReadGolden(const std::string& name) {
  return OrderedJson::parse(*ReadFile(kChatGoldens / name));
}

// 24 November 2026, 13:05:09, a Tuesday.
std::tm FixedTime() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 10;
  time.tm_mday = 24;
  time.tm_hour = 13;
  time.tm_min = 5;
  time.tm_sec = 9;
  time.tm_wday = 2;
  return time;
}

ChatOptions OptionsOf(const OrderedJson& conversation, bool prompt) {
  ChatOptions options{.add_generation_prompt = prompt, .now = FixedTime()};
  options.variables = conversation;
  options.variables.erase("messages");
  options.variables["bos_token"] = "<s>";
  options.variables["eos_token"] = "</s>";
  return options;
}

TEST(ChatGoldensTest, TextIsThatOfTransformers) {
  const OrderedJson templates = ReadGolden("templates.json");
  const OrderedJson conversations = ReadGolden("conversations.json");
  EXPECT_GE(templates.size(), 40u);
  for (const OrderedJson& row : ReadGolden("rendered.json")) {
    const auto name = row["template"].get<std::string>();
    SCOPED_TRACE(name + ", " + row["conversation"].get<std::string>() +
                 (row["prompt"].get<bool>() ? ", with prompt" : ""));
    const auto parsed = ChatTemplate::Parse(templates[name].get<std::string>());
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    const OrderedJson& conversation = conversations[row["conversation"].get<std::string>()];
    const auto rendered = parsed->Render(conversation["messages"],
                                         OptionsOf(conversation, row["prompt"].get<bool>()));
    if (row.contains("error")) {
      EXPECT_FALSE(rendered.ok());
      continue;
    }
    ASSERT_TRUE(rendered.ok()) << rendered.status().message();
    EXPECT_EQ(rendered->text, row["text"].get<std::string>());
    if (!row.contains("generated")) continue;
    std::vector<std::string> expected, generated;
    for (const OrderedJson& span : row["generated"]) {
      // The goldens count characters; every text with generation blocks is compared by its words.
      std::u32string characters;
      for (std::string_view rest = rendered->text; !rest.empty();) {
        const Utf8Character next = FirstUtf8Character(rest);
        characters += next.code_point;
        rest.remove_prefix(next.length);
      }
      std::string part;
      for (auto i = span[0].get<std::size_t>(); i < span[1].get<std::size_t>(); ++i) {
        AppendUtf8(characters[i], &part);
      }
      expected.push_back(part);
    }
    for (const Span& span : rendered->generated) {
      generated.push_back(rendered->text.substr(span.begin, span.end - span.begin));
    }
    EXPECT_EQ(generated, expected);
  }
}

std::string RenderedText(std::string_view source, const ChatOptions& options = {}) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return "error: " + parsed.status().message();
  const auto rendered =
      parsed->Render(OrderedJson::parse(R"([{"role": "user", "content": "x"}])"), options);
  return rendered.ok() ? rendered->text : "error: " + rendered.status().message();
}

TEST(ChatTemplateTest, ReportsExceptionsOfTheTemplate) {
  EXPECT_EQ(RenderedText("\n{{ raise_exception('no system role') }}"),
            "error: line 2: the template raised: no system role");
}

TEST(ChatTemplateTest, NamesTheLineOfAnError) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\n{% if x %}", "the template ends before a tag 'endif'"},
      {"\n\n{{ a b }}", "line 3: unexpected 'b'"},
      {"{{ 'a }}", "line 1: a text has no end"},
      {"{{ (1 }}", "line 1: a tag has no end: '}}'"},
      {"{{ x.y }}", "line 1: 'x' is undefined"},
      {"{{ messages[0].z.y }}", "line 1: 'dict object' has no attribute 'z'"},
      {"{{ 'a' + 1 }}", "line 1: unsupported operand types for +: 'str' and 'int'"},
      {"{{ 'a' + ['b'] }}", "line 1: unsupported operand types for +: 'str' and 'list'"},
      {"{{ {} - 1.5 }}", "line 1: unsupported operand types for -: 'dict' and 'float'"},
      {"{{ 1 < 'a' }}", "line 1: unsupported operand types for <: 'int' and 'str'"},
      {"{{ 1 | frob }}", "line 1: there is no filter 'frob'"},
      {"{{ 1 is frob }}", "line 1: there is no test 'frob'"},
      {"{{ 1 / 0 }}", "line 1: division by zero"},
      {"{% break %}", "break and continue need a loop"},
      {"{% set messages.x = 1 %}", "line 1: 'messages' is no namespace"}};
  for (const auto& [source, error] : cases) {
    EXPECT_THAT(RenderedText(source), HasSubstr(error)) << source;
  }
}

TEST(ChatTemplateTest, IsUtf8) {
  EXPECT_THAT(RenderedText("{{ '\xC3\xA9\xF2' | upper }}"),
              HasSubstr("is not UTF-8: byte 6 begins no character"));
}

TEST(ChatTemplateTest, RefusesExternalAccessAndMutation) {
  for (const char* source : {"{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}"}) {
    EXPECT_THAT(RenderedText(source), HasSubstr("dsrun does not support that in chat templates"))
        << source;
  }
  EXPECT_THAT(RenderedText("{{ messages.append(1) }}"),
              HasSubstr("a template may not change a list (append)"));
  EXPECT_THAT(RenderedText("{{ messages[0].update({}) }}"),
              HasSubstr("a template may not change a dict (update)"));
  EXPECT_THAT(RenderedText("{{ ''.__class__.__mro__ }}"),
              HasSubstr("has no attribute '__class__'"));
}

TEST(ChatTemplateTest, IsBoundedInTimeAndMemory) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
       "{% endfor %}",
       "bytes of text"},
      {"{{ 'a' * 99999999999 }}", "bytes of text"},
      {"{{ range(100001) }}", "a range has more than 100000 numbers"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nests blocks and calls too deep"},
      {"{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}", "nested too deep"},
      {"{{ " + std::string(5000, '-') + "1 }}", "unexpected '-'"}};
  for (const auto& [source, error] : cases) {
    EXPECT_THAT(RenderedText(source), HasSubstr(error)) << source.substr(0, 60);
  }
  ChatOptions few_steps;
  few_steps.limits.steps = 1000;
  EXPECT_THAT(RenderedText("{% for a in range(9999) %}{{ a }}{% endfor %}", few_steps),
              HasSubstr("the template takes more than 1000 steps"));
  std::string nested;
  for (int i = 0; i < 5000; ++i) nested += "{% if true %}";
  EXPECT_THAT(RenderedText(nested), HasSubstr("nested too deep"));
  const auto parsed = ChatTemplate::Parse("{{ messages }}");
  OrderedJson deep = OrderedJson::array();
  for (int i = 0; i < 500; ++i) deep = OrderedJson::array({std::move(deep)});
  EXPECT_THAT(parsed->Render(deep).status().message(), HasSubstr("nested too deep"));
}

TEST(ValueTest, FloatsAreWrittenAsPythonWritesThem) {
  for (const auto& [value, text] : std::vector<std::pair<double, std::string>>{
           {1.0, "1.0"},
           {-0.0, "-0.0"},
           {0.1, "0.1"},
           {1e16, "1e+16"},
           {123456789012345.0, "123456789012345.0"},
           {1.5e-5, "1.5e-05"},
           {0.0001, "0.0001"},
           {1.25e100, "1.25e+100"},
           {1.7976931348623157e308, "1.7976931348623157e+308"},
           {-5e-324, "-5e-324"},
           {100.0, "100.0"}}) {
    EXPECT_EQ(ReprOfFloat(value), text);
  }
}

}  // namespace
}  // namespace ds::tokenizer
