// What comes from outside may be made to cost time, memory or stack. These inputs would take hours
// or end the process if nothing bounded them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/tokenizer/chat/chat_template.h"
#include "runtime/tokenizer/file/read_tokenizer.h"

namespace ds::tokenizer {
namespace {

using ::testing::HasSubstr;

std::string Repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// What a template puts out, or why it does not.
std::string Outcome(const std::string& source) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status().message();
  const auto rendered = parsed->Render(nlohmann::ordered_json::array());
  return rendered.ok() ? rendered->text : rendered.status().message();
}

constexpr char kSmallest[] = "(0 - 9223372036854775807 - 1)";

TEST(ChatLimitsTest, ChainsAreNoWayAroundTheDepth) {
  for (const std::string link : {" + 1", " ~ 1", " or 1", "|abs", ".a", "[0]", "()", " is none"}) {
    EXPECT_THAT(Outcome("{{ x" + Repeated(link, 100000) + " }}"), HasSubstr("too many parts"))
        << link;
  }
  EXPECT_EQ(Outcome("{{ 1" + Repeated(" + 1", 300) + " }}"), "301");
  // Each call waits for the one inside, in the middle of an expression.
  EXPECT_THAT(
      Outcome("{% macro m(n) %}{{ 1" + Repeated(" ~ 1", 50) + " ~ m(n) }}{% endmacro %}{{ m(1) }}"),
      HasSubstr("too deep"));
}

TEST(ChatLimitsTest, NoValueHoldsItself) {
  EXPECT_THAT(Outcome("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}"),
              HasSubstr("a namespace may not hold another one"));
  EXPECT_THAT(Outcome("{% set ns = namespace() %}{% set ns.l = [{'a': ns}] %}{{ ns.l }}"),
              HasSubstr("a namespace may not hold another one"));
  EXPECT_THAT(Outcome("{% set a = namespace() %}{% set b = namespace(a=a) %}"),
              HasSubstr("a namespace may not hold another one"));
}

TEST(ChatLimitsTest, ValuesAreNotNestedWithoutEnd) {
  EXPECT_THAT(Outcome("{% set ns = namespace(l=[]) %}{% for i in range(100000) %}"
                      "{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}"),
              HasSubstr("nests lists and dicts too deep"));
}

TEST(ChatLimitsTest, SharedValuesCountForEachVisit) {
  const std::string doubled =
      "{% set ns = namespace(l=['x'], m=['x']) %}{% for i in range(60) %}"
      "{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}";
  for (const std::string use :
       {"{{ ns.l }}", "{{ ns.l|tojson }}", "{{ ns.l == ns.m }}", "{{ ns.l < ns.m }}",
        "{{ ns.l in [ns.m] }}", "{{ 'a' ~ ns.l }}", "{{ [ns.l, ns.m]|unique|list|length }}",
        "{{ ns.l|string }}", "{{ [ns.l]|sort }}", "{{ [ns.l].index(ns.m) }}"}) {
    EXPECT_THAT(Outcome(doubled + use), HasSubstr("more than 268435456 bytes")) << use;
  }
}

TEST(ChatLimitsTest, BytesAreCountedBeforeTheyAreMade) {
  for (const std::string use :
       {"{{ ('a' * 100000)|replace('a', 'b' * 100000) }}",
        "{{ ('a' * 100000).replace('', 'b' * 100000) }}", "{{ range(10000)|join('x' * 100000) }}",
        "{{ ('x' * 100000).join(['a'] + 'b' * 3000) }}", "{{ 'a'.ljust(9223372036854775807) }}",
        "{{ 'a'.zfill(1000000000000) }}", "{{ 'a' * 9223372036854775807 }}",
        "{{ ('\\n' * 1000000)|indent(1000, true, true) }}",
        "{{ range(10000)|map('replace', '', 'x' * 100000)|list }}",
        "{{ range(100000)|list|tojson(separators=['x' * 100000, ':']) }}"}) {
    const std::string outcome = Outcome(use);
    EXPECT_TRUE(outcome.find("more than 268435456 bytes") != std::string::npos ||
                outcome.find("unsupported operand types for") != std::string::npos)
        << use << ": " << outcome.substr(0, 200);
  }
}

TEST(ChatLimitsTest, TextsAreSearchedInOnePass) {
  const std::string setup = "{% set hay = 'a' * 4000000 %}{% set needle = 'a' * 1000000 ~ 'b' %}";
  EXPECT_EQ(Outcome(setup + "{{ needle in hay }} {{ hay.find(needle) }} {{ hay.count(needle) }} "
                            "{{ hay.split(needle)|length }}"),
            "False -1 0 1");
  EXPECT_THAT(Outcome(setup + "{{ hay.rfind(needle) }}"), HasSubstr("bytes"));
  EXPECT_EQ(Outcome("{{ ('ab ' * 300000).split()|length }}"), "300000");
}

TEST(ChatLimitsTest, NumbersDoNotOverflow) {
  const std::string smallest = kSmallest;
  EXPECT_EQ(Outcome("{{ " + smallest + " % -1 }} {{ " + smallest + " is divisibleby(-1) }}"),
            "0 True");
  EXPECT_THAT(Outcome("{{ " + smallest + "|abs }}"), HasSubstr("too large"));
  EXPECT_THAT(Outcome("{{ [9223372036854775807, 1]|sum }}"), HasSubstr("too large"));
  EXPECT_EQ(Outcome("{{ [9007199254740993, 0]|sum }}"), "9007199254740993");
  EXPECT_EQ(Outcome("{{ range(9223372036854775805, 9223372036854775807, 5)|list }}"),
            "[9223372036854775805]");
  EXPECT_EQ(Outcome("{{ 'a'.ljust(" + smallest + ") }}"), "a");
}

// The white space around a token is looked at once, however many tokens there are.
TEST(AddedTokenLimitsTest, TokensThatStripBlanksCostLinearTime) {
  const auto tokenizer = ParseTokenizerJson(
      R"({"added_tokens": [
            {"id": 1, "content": "<m>", "lstrip": true, "rstrip": true, "normalized": false},
            {"id": 2, "content": "\n", "rstrip": true, "lstrip": true, "normalized": false}],
          "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"}})",
      "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  Encoder encoder(*tokenizer);
  constexpr int kTimes = 1'000'000;
  EXPECT_EQ(encoder.Encode(Repeated("<m> ", kTimes))->ids.size(), kTimes);
  // The first one takes the others along, as in Hugging Face's library.
  EXPECT_EQ(encoder.Encode(Repeated("\n", kTimes))->ids.size(), 1);
}

}  // namespace
}  // namespace ds::tokenizer
