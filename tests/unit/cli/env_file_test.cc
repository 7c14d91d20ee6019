#include "cli/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

Environment ParsedVariables(std::string_view text) {
  const auto environment = ParseEnvFile(text, "f");
  EXPECT_TRUE(environment.ok()) << environment.status().message();
  return environment.ok() ? *environment : Environment();
}

std::string VariableRefusal(std::string_view text) {
  const auto environment = ParseEnvFile(text, "f");
  return environment.ok() ? "accepted" : environment.status().message();
}

TEST(EnvFileTest, CommentsBlankLinesAndExportsAreFine) {
  EXPECT_THAT(
      ParsedVariables("\xEF\xBB\xBF# first\n\n  \t\r\nA=1\r\n  B = two words  \n"
                      "export\tC=3 # three\n#D=4\n\t# E=5\nF=no newline"),
      ElementsAre(Pair("A", "1"), Pair("B", "two words"), Pair("C", "3"), Pair("F", "no newline")));
}

TEST(EnvFileTest, ValuesAreBytesAndNothingIsExpanded) {
  EXPECT_THAT(
      ParsedVariables("A=$HOME/`id`;*|\\n\nB=a=b=c\nC=\nD=64(x2)\nE=a#b\nF=\xFF\xFE\nexport=1\n"
                      "G=#fff\nH= #fff\n"),
      ElementsAre(Pair("A", "$HOME/`id`;*|\\n"), Pair("B", "a=b=c"), Pair("C", ""),
                  Pair("D", "64(x2)"), Pair("E", "a#b"), Pair("F", "\xFF\xFE"), Pair("export", "1"),
                  Pair("G", "#fff"), Pair("H", "")));
}

TEST(EnvFileTest, Quotes) {
  EXPECT_THAT(ParsedVariables(R"(A=" a # b " # comment
B='$x \n "y" '
C="tab\tline\nquote\" back\\ dollar\$ other\d"
D=""
E=it's "fine" inside
)"),
              ElementsAre(Pair("A", " a # b "), Pair("B", "$x \\n \"y\" "),
                          Pair("C", "tab\tline\nquote\" back\\ dollar$ other\\d"), Pair("D", ""),
                          Pair("E", "it's \"fine\" inside")));
}

TEST(EnvFileTest, TheLastLineOfANameCounts) {
  EXPECT_THAT(ParsedVariables("A=1\nB=2\nA=3\n"), ElementsAre(Pair("A", "3"), Pair("B", "2")));
  EXPECT_THAT(ParsedVariables(""), IsEmpty());
}

TEST(EnvFileTest, NamesTheLineOfAnErrorWithoutItsValue) {
  EXPECT_EQ(VariableRefusal("A=1\n\nNAME\n"), "f:3: expected NAME=VALUE, found no '='");
  EXPECT_EQ(VariableRefusal("=secret"), "f:1: no name before '='");
  EXPECT_EQ(VariableRefusal("set A=secret"), "f:1: the name before '=' has a blank or a quote");
  EXPECT_EQ(VariableRefusal("'A'=secret"), "f:1: the name before '=' has a blank or a quote");
  EXPECT_EQ(VariableRefusal("A=\"secret"), "f:1: the value's \" is not closed");
  EXPECT_EQ(VariableRefusal("A=\"secret\\\""), "f:1: the value's \" is not closed");
  EXPECT_EQ(VariableRefusal("A='secret' more"),
            "f:1: text after the closing '; quote the whole value");
  EXPECT_EQ(VariableRefusal("A='secret'#more"),
            "f:1: text after the closing '; quote the whole value");
  EXPECT_EQ(VariableRefusal(std::string_view("A=sec\0ret", 9)), "f:1: holds a NUL byte");
}

TEST(EnvFileTest, ALineThatAShellReadsAsSeveralWordsIsRefused) {
  const std::string why =
      "f:2: a blank in the value after `export`, where a shell ends it: quote the whole value, or "
      "write one variable per line";
  for (const char* line : {"export A=1 B=2", "export A=1\tB", "export A=two words # b"}) {
    EXPECT_EQ(VariableRefusal(std::string("\n") + line), why) << line;
  }
  EXPECT_THAT(ParsedVariables("export A=\"1 B=2\"\nexport B= 1 # c\nexport C=\nD=1 E=2"),
              ElementsAre(Pair("A", "1 B=2"), Pair("B", "1"), Pair("C", ""), Pair("D", "1 E=2")));
}

TEST(EnvFileTest, ANamedFileMustExist) {
  const auto missing = ReadEnvFile("/no/such/file");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr("/no/such/file"));
  EXPECT_FALSE(ReadEnvFile("/tmp").ok());
}

TEST(EnvFileTest, TheUsualFilesAreHomeThenHere) {
  const ds::testing::TemporaryFolder folder;
  const fs::path home = folder.path() / "home";
  const fs::path here = folder.path() / "here";
  fs::create_directories(home);
  fs::create_directories(here);
  EXPECT_THAT(*FindUsualEnvFiles(std::nullopt, home, here), IsEmpty());
  ASSERT_TRUE(WriteFileAtomically(here / ".deepspeed_env", "A=1").ok());
  EXPECT_THAT(*FindUsualEnvFiles(std::nullopt, home, here), ElementsAre(here / ".deepspeed_env"));
  ASSERT_TRUE(WriteFileAtomically(home / ".deepspeed_env", "A=1").ok());
  EXPECT_THAT(*FindUsualEnvFiles(std::nullopt, home, here),
              ElementsAre(home / ".deepspeed_env", here / ".deepspeed_env"));
  EXPECT_THAT(*FindUsualEnvFiles(std::nullopt, home, home), ElementsAre(home / ".deepspeed_env"));
  EXPECT_THAT(*FindUsualEnvFiles("other", home, here), IsEmpty());
  EXPECT_THAT(*FindUsualEnvFiles((here / ".deepspeed_env").string(), home, here),
              ElementsAre(here / ".deepspeed_env"));
  EXPECT_THAT(*FindUsualEnvFiles("", home, here), IsEmpty());
  EXPECT_THAT(*FindUsualEnvFiles("none/none", home, here), IsEmpty());
}

// Its variables would be missing in every rank without a word.
TEST(EnvFileTest, AUsualFileThatCannotBeReachedIsNotAbsent) {
  const ds::testing::TemporaryFolder folder;
  fs::create_symlink(".deepspeed_env", folder.path() / ".deepspeed_env");  // to itself
  EXPECT_THAT(FindUsualEnvFiles(std::nullopt, "", folder.path()).status().message(),
              HasSubstr(".deepspeed_env: Too many levels of symbolic links"));
}

}  // namespace
}  // namespace ds::cli
