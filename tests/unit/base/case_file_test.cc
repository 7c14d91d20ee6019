#include "tests/support/case_file.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

constexpr std::string_view kTwoCases =
    "Of letters.\n"
    "\n"
    "### small letters\n"
    "A reason.\n"
    "--- input\n"
    "a\n"
    "\n"
    "b\n"
    "--- expected\n"
    "A\n"
    "\n"
    "B\n"
    "\n"
    "### nothing\n"
    "--- input\n"
    "--- expected\n";

std::string ParseError(std::string_view text) {
  const auto parsed = ParseCases(text, "f.txt");
  return parsed.ok() ? "accepted" : parsed.status().message();
}

TEST(CaseFileTest, CasesHaveTitleInputAndExpectedText) {
  const auto parsed = ParseCases(kTwoCases, "f.txt");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->preamble, "Of letters.\n\n");
  ASSERT_EQ(parsed->cases.size(), 2U);
  EXPECT_EQ(parsed->cases[0].title, "small letters");
  EXPECT_EQ(parsed->cases[0].line, 3);
  EXPECT_EQ(parsed->cases[0].input, "a\n\nb\n");
  EXPECT_EQ(parsed->cases[0].expected, "A\n\nB");
  EXPECT_EQ(parsed->cases[1].title, "nothing");
  EXPECT_EQ(parsed->cases[1].line, 14);
  EXPECT_EQ(parsed->cases[1].input, "");
  EXPECT_EQ(parsed->cases[1].expected, "");
  EXPECT_EQ(FormatCases(*parsed), kTwoCases);
}

TEST(CaseFileTest, ErrorsNameFileAndLine) {
  EXPECT_EQ(ParseError(""), "f.txt: there is no case in it");
  EXPECT_EQ(ParseError("### a\n"), "f.txt:1: the case has no section 'input'");
  EXPECT_EQ(ParseError("x\n### a\n--- input\n### b\n"),
            "f.txt:2: the case has no section 'expected'");
  EXPECT_EQ(ParseError("### a\n--- input\n--- expected\n### a\n"),
            "f.txt:4: the title is given twice, first in line 1: a");
  EXPECT_EQ(ParseError("###  \n"), "f.txt:1: the case has no title");
  EXPECT_EQ(ParseError("--- input\n"), "f.txt:1: a section before the first title");
  const std::string rule = ": a case has one section 'input' and then one 'expected'";
  EXPECT_EQ(ParseError("### a\n--- output\n"), "f.txt:2: section 'output'" + rule);
  EXPECT_EQ(ParseError("### a\n--- expected\n"), "f.txt:2: section 'expected'" + rule);
  EXPECT_EQ(ParseError("### a\n--- input\n--- input\n"), "f.txt:3: section 'input'" + rule);
  EXPECT_EQ(ParseError("### a\n--- input\n--- expected\n--- expected\n"),
            "f.txt:4: section 'expected'" + rule);
}

// EXPECT_NONFATAL_FAILURE takes statements without local variables.
std::filesystem::path& PathOfCases() {
  static std::filesystem::path path;
  return path;
}

std::string ToUpper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string Repeat(const std::string& input) { return input; }

class CaseFileRunTest : public ::testing::Test {
 protected:
  CaseFileRunTest() {
    ::unsetenv("DSRUN_UPDATE_CASES");
    PathOfCases() = folder_.path() / "f.txt";
    EXPECT_TRUE(WriteFileAtomically(PathOfCases(), std::string(kTwoCases)).ok());
  }
  ~CaseFileRunTest() override { ::unsetenv("DSRUN_UPDATE_CASES"); }
  TemporaryFolder folder_;
};

TEST_F(CaseFileRunTest, ExpectedTextIsCompared) {
  ExpectCases(PathOfCases(), ToUpper);
  EXPECT_NONFATAL_FAILURE(ExpectCases(PathOfCases(), Repeat), "f.txt:3: small letters");
  EXPECT_NONFATAL_FAILURE(ExpectCases(PathOfCases(), Repeat), "-A\n+a\n");
}

TEST_F(CaseFileRunTest, UpdateRewritesExpectedTextAlone) {
  ::setenv("DSRUN_UPDATE_CASES", "1", 1);
  ExpectCases(PathOfCases(), Repeat);
  std::string expected(kTwoCases);
  expected.replace(expected.find("A\n\nB"), 4, "a\n\nb");
  EXPECT_EQ(*ReadFile(PathOfCases()), expected);
}

}  // namespace
}  // namespace ds::testing
