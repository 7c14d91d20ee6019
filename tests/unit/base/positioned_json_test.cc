#include "runtime/base/positioned_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/places.h"

namespace ds {

void PrintTo(const JsonPosition& position, std::ostream* out) {
  *out << position.line << ":" << position.column;
}

namespace {

using ::testing::ElementsAre;

// "line:column message" of every problem.
std::vector<std::string> Problems(std::string_view text) {
  std::vector<std::string> lines;
  for (const JsonProblem& problem : ReadPositionedJson(text).problems) {
    lines.push_back(std::to_string(problem.position.line) + ":" +
                    std::to_string(problem.position.column) + " " + problem.message);
  }
  return lines;
}

TEST(PositionedJsonTest, HasThePositionOfEveryKeyAndValue) {
  const JsonReading reading = ReadPositionedJson(
      "{\n"
      "  \"a\" : 12,\"b\":\"x\\\"y\",\n"
      "  \"c\": [ -1.5e3 ,true, {\"d\": null}, \"s\"],\n"
      "  \"e\"\n:\n {}\n"
      "}\n");
  ASSERT_TRUE(reading.complete);
  const std::vector<JsonMember>& members = reading.root.members;
  ASSERT_EQ(members.size(), 4u);
  EXPECT_EQ(reading.root.position, (JsonPosition{1, 1}));
  EXPECT_EQ(members[0].position, (JsonPosition{2, 3}));
  EXPECT_EQ(members[0].node.position, (JsonPosition{2, 9}));
  EXPECT_EQ(members[1].position, (JsonPosition{2, 12}));
  EXPECT_EQ(members[1].node.position, (JsonPosition{2, 16}));
  const JsonNode& list = members[2].node;
  EXPECT_EQ(list.position, (JsonPosition{3, 8}));
  ASSERT_EQ(list.elements.size(), 4u);
  EXPECT_EQ(list.elements[0].position, (JsonPosition{3, 10}));
  EXPECT_EQ(list.elements[1].position, (JsonPosition{3, 18}));
  EXPECT_EQ(list.elements[2].position, (JsonPosition{3, 24}));
  EXPECT_EQ(list.elements[2].members[0].position, (JsonPosition{3, 25}));
  EXPECT_EQ(list.elements[2].members[0].node.position, (JsonPosition{3, 30}));
  EXPECT_EQ(list.elements[3].position, (JsonPosition{3, 37}));
  EXPECT_EQ(members[3].position, (JsonPosition{4, 3}));
  EXPECT_EQ(members[3].node.position, (JsonPosition{6, 2}));
}

TEST(PositionedJsonTest, ColumnsCountCharactersNotBytes) {
  const JsonReading reading = ReadPositionedJson("{\"größe\": 1, \"b\": 2}");
  ASSERT_EQ(reading.root.members.size(), 2u);
  EXPECT_EQ(reading.root.members[1].position, (JsonPosition{1, 14}));
}

TEST(PositionedJsonTest, SkipsCommentsAndByteOrderMark) {
  const JsonReading reading = ReadPositionedJson(
      "\xEF\xBB\xBF// head \" {\n"
      "{ # hash\n"
      "  /* block\n 'of' lines */ \"a\": \"// kept # /* too */\" // tail\n"
      ", \"b\": 7/**/}\n");
  ASSERT_TRUE(reading.complete);
  EXPECT_EQ(FullValue(reading.root),
            nlohmann::ordered_json({{"a", "// kept # /* too */"}, {"b", 7}}));
  EXPECT_EQ(reading.root.members[0].position, (JsonPosition{4, 16}));
}

TEST(PositionedJsonTest, TheValueMatchesAPlainParser) {
  const std::string text = R"({"a":[1,2.5,[],{}],"b":{"c":{"d":[null,false]}},"e":"\u00e9"})";
  EXPECT_EQ(FullValue(ReadPositionedJson(text).root), nlohmann::ordered_json::parse(text));
}

TEST(PositionedJsonTest, ReportsEveryRepeatedName) {
  EXPECT_THAT(Problems("{\"a\": 1,\n \"b\": {\"a\": 2, \"a\": 3},\n \"a\": 4}"),
              ElementsAre("2:16 the key \"a\" is given twice in one object",
                          "3:2 the key \"a\" is given twice in one object"));
}

TEST(PositionedJsonTest, NamesExpectedAndFoundTokens) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\n", "2:1 expected a key or '}', found the end of the file"},
      {"{\"a\": 1,\n", "2:1 expected a key or '}', found the end of the file"},
      {"{\"a\": 1", "1:8 expected ',' or '}', found the end of the file"},
      {"{\"a\" 1}", "1:6 expected ':', found '1'"},
      {"{a b: 1}", "1:4 expected ':', found 'b'"},
      {"{\"a\": }", "1:7 expected a value, found '}'"},
      {"{\"a\": 1,, \"b\": 2}", "1:9 expected a key or '}', found ','"},
      {"[1, 2,, 3]", "1:7 expected a value, found ','"},
      {"[1, 2", "1:6 expected ',' or ']', found the end of the file"},
      {"[1, ", "1:5 expected a value or ']', found the end of the file"},
      {"{} x", "1:4 expected the end of the file, found 'x'"},
      {"null\n", "1:1 expected an object, { ... }, found only 'null'"},
      {"// a number\n3", "2:1 expected an object, { ... }, found only '3'"},
      {"\"x\"", "1:1 expected an object, { ... }, found only '\"x\"'"},
      {"a: 1\nb", "2:2 expected ':', found the end of the file"},
      {"a: 1}", "1:5 expected a key, found '}'"},
      {"{\"a\": \"no end\n}", "1:7 a string that has no end on its line"},
      {"{\"a\": 'no end", "1:7 a string that has no end on its line"},
      {"{\"a\": '''no end''}", "1:7 a string in ''' that has no end"},
      {"{\"a\": \"\\x\"}", "1:8 an escape that JSON does not have"},
      {"{\"a\": \"\\ud800\"}", "1:8 half a surrogate pair, which is not a character"},
      {"{\"a\": \"\t\"}",
       "1:8 a control character in a string; write it as an escape, \\t for a tab"},
      {"{\"a\": 1e999}", "1:7 '1e999' is too large for a number"},
      {"{\"a\": 1 /* open }", "1:9 a comment that has no end"},
      {"{\xff", "1:2 '\\xff' is not UTF-8"},
      {"{\"a\": x, \"b\": 1}\n",
       "2:1 expected ',' or '}', found the end of the file; the text without quotes at 1:7 takes "
       "the "
       "rest of its line"},
  };
  for (const auto& [text, problem] : cases) EXPECT_THAT(Problems(text), ElementsAre(problem));
}

TEST(PositionedJsonTest, HasThePositionsInHjsonToo) {
  const JsonReading reading = ReadPositionedJson(
      "# no braces\n"
      "a: some text # of it\n"
      "'b' : {c: '''x\n   y''' d: [1\n2]}\n");
  ASSERT_TRUE(reading.complete);
  const std::vector<JsonMember>& members = reading.root.members;
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(reading.root.position, (JsonPosition{2, 1}));
  EXPECT_EQ(members[0].position, (JsonPosition{2, 1}));
  EXPECT_EQ(members[0].node.position, (JsonPosition{2, 4}));
  EXPECT_EQ(members[1].position, (JsonPosition{3, 1}));
  EXPECT_EQ(members[1].node.members[0].node.position, (JsonPosition{3, 11}));
  EXPECT_EQ(members[1].node.members[1].position, (JsonPosition{4, 9}));
  EXPECT_EQ(members[1].node.members[1].node.elements[1].position, (JsonPosition{5, 1}));
}

// What the Python package hjson, with which DeepSpeed reads its config, makes of the same text.
TEST(PositionedJsonTest, ReadsTheSameAsHjson) {
  std::ifstream file(DS_SOURCE_DIR "/tests/unit/base/goldens/hjson.json");
  const auto golden = nlohmann::ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
  ASSERT_GT(golden.size(), 1000u);
  int accepted = 0;
  for (const auto& row : golden) {
    const auto text = row[0].get<std::string>();
    const JsonReading reading = ReadPositionedJson(text);
    const bool is_good = reading.complete && reading.problems.empty();
    EXPECT_EQ(is_good, row.size() == 2) << text;
    if (!is_good || row.size() < 2) continue;
    EXPECT_EQ(FullValue(reading.root), row[1]) << text;
    ++accepted;
  }
  EXPECT_GT(accepted, 200);
}

TEST(PositionedJsonTest, RefusesEndlessNesting) {
  EXPECT_TRUE(ReadPositionedJson(std::string(64, '[') + std::string(64, ']')).complete);
  EXPECT_THAT(Problems(std::string(100000, '[')), ElementsAre("1:65 nested too deep"));
}

}  // namespace
}  // namespace ds
