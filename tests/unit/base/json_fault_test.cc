#include "runtime/base/json_fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "runtime/base/files.h"
#include "tests/places.h"

namespace ds {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(JsonFault, IsReportedWithItsPosition) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "line 1, column 1: it is empty"},
      {" \n", "line 2, column 1: it is empty"},
      {"{\n  \"a\": 1", "line 2, column 9: it ends inside an object: it is incomplete"},
      {"{\"a\"", "line 1, column 5: it ends inside an object: it is incomplete"},
      {"[1, [2, 3]", "line 1, column 11: it ends inside a list: it is incomplete"},
      {"{\"a\": \"bc", "line 1, column 10: it ends inside a text: it is incomplete"},
      {"tru", "line 1, column 4: it ends inside a value: it is incomplete"},
      {"{\"a\": 1 \"b\": 2}", "line 1, column 9: ',' or '}' is missing"},
      {"{\"a\" \"b\"}", "line 1, column 6: ':' after a key is missing"},
      {"{\"a\" 1}", "line 1, column 6: ':' after a key is missing"},
      {"{\"a\": }", "line 1, column 7: a value is missing"},
      {"{\"a\": 1,}", "line 1, column 9: a key in quotes is missing"},
      {"{\"a\": \"x\" 1}", "line 1, column 11: ',' or '}' is missing"},
      {"{]", "line 1, column 2: a key in quotes is missing"},
      {"[1 2]", "line 1, column 4: ',' or ']' is missing"},
      {"[1,]", "line 1, column 4: a value is missing"},
      {"]", "line 1, column 1: a value is missing"},
      {"{} {}", "line 1, column 4: there is more after the end of the JSON"},
      {"{\"a\": NaN}", "line 1, column 7: NaN is not JSON: texts are in double quotes"},
      {"{'a': 1}", "line 1, column 2: 'a' is not JSON"},
      {"[01]", "line 1, column 2: 01 is not JSON"},
      {"[1, tru]", "line 1, column 5: tru is not JSON"},
      {"{\"a\": 1} x", "line 1, column 10: there is more after the end of the JSON"},
      {"[\n1,\n1e999]", "line 3, column 1: the number 1e999 is larger than the largest double"},
      {"{\"a\": \"x\ny\"}", "line 1, column 9: a line ends inside a text: the closing quote"},
      {"[\"\x01\"]", "line 1, column 3: a control character in a text"},
      {"[\"f\xfcr\"]", "line 1, column 4: a byte in a text is not UTF-8"},
      {"[\"\\x\"]", "line 1, column 4: an escape in a text (after \\) is none that JSON has"},
      {"[\"\\u12\"]", "line 1, column 7: an escape in a text"},
      {"{\n  \"a\": \"\\ud83d\"}",
       "line 2, column 9: \\ud83d is a lone surrogate, half of a pair, and no character"}};
  for (const auto& [json, said] : cases) {
    EXPECT_THAT(DescribeJsonFault(json), HasSubstr(said)) << json;
  }
  EXPECT_TRUE(FindJsonFault("{} {}")->has_more_text);
  EXPECT_FALSE(FindJsonFault("{}").has_value());
}

// Every cut and every change of a byte is described, and in no parser's words.
TEST(JsonFault, EveryDamageOfATextIsDescribed) {
  const std::string whole = R"({"a": [1, -2.5e3, "b\n\u00e9 ü", null], "c": {"d": true, "e": {}}})";
  ASSERT_FALSE(FindJsonFault(whole).has_value());
  const auto check = [](const std::string& json) {
    const auto fault = FindJsonFault(json);
    EXPECT_EQ(fault.has_value(), !nlohmann::json::accept(json)) << json;
    if (!fault) return;
    EXPECT_LE(fault->offset, json.size()) << json;
    EXPECT_THAT(fault->what, Not(HasSubstr("parse"))) << json;
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    check(whole.substr(0, at));
    for (const char byte : std::string("\"\\{}[],:x0\n\xff")) {
      std::string damaged = whole;
      damaged[at] = byte;
      check(damaged);
    }
  }
}

TEST(JsonFault, ALongWordIsTruncated) {
  const std::string said = DescribeJsonFault("[1" + std::string(100'000, '0') + "]");
  EXPECT_THAT(said, HasSubstr("column 2: the number 1000"));
  EXPECT_LT(said.size(), 200U);
}

// A parser's exception is caught without a name: nobody can show its words then.
TEST(JsonFault, NoParsersWordsAreShown) {
  const std::regex named(R"(catch \(const [\w:]*[jJ]son::\w+& \w+\))");
  int catches = 0;
  for (const char* folder : {"cli", "daemon", "runtime"}) {
    const std::filesystem::path root = std::filesystem::path(DS_SOURCE_DIR) / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.path().extension() != ".cc") continue;
      const std::string text = *ReadFile(entry.path());
      catches += text.find("son::exception&)") != std::string::npos ? 1 : 0;
      EXPECT_FALSE(std::regex_search(text, named)) << entry.path();
    }
  }
  EXPECT_GT(catches, 5);
}

}  // namespace
}  // namespace ds
