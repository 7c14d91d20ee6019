// dsrun help: the pages of the manual as a user sees them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::StartsWith;

ProgramResult Help(const std::vector<std::string>& words) {
  std::vector<std::string> line = {DS_BIN_DIR "/dsrun", "help"};
  line.insert(line.end(), words.begin(), words.end());
  return RunProgram(line, {});
}

void ExpectFits80Columns(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST(HelpCommandTest, PrintsThePagesOfTheManual) {
  const std::string overview = Help({}).out;
  ExpectFits80Columns(overview);
  int pages = 0;
  for (const auto& entry : fs::directory_iterator(DS_SOURCE_DIR "/cli/manual")) {
    const std::string name = entry.path().stem().string();
    const StatusOr<std::string> text = ReadFile(entry.path());
    ASSERT_TRUE(text.ok());
    EXPECT_THAT(*text, StartsWith("# " + name + ": "));
    const ProgramResult result = Help({name});
    EXPECT_EQ(result.status, 0) << result.err;
    // Comments of one line stand above blocks of code.
    const std::string shown = std::regex_replace(*text, std::regex("<!--[^\n]*\n\n"), "");
    EXPECT_EQ(result.out, shown) << "a page must not have a command's name";
    EXPECT_THAT(overview, ContainsRegex("\n  " + name + " +[A-Za-z]"));
    ExpectFits80Columns(*text);
    ++pages;
  }
  EXPECT_GE(pages, 1);
}

TEST(HelpCommandTest, PrintsThePageOfAllKeys) {
  const ProgramResult result = Help({"ds_config"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("# ds_config: "));
  EXPECT_THAT(Help({}).out, ContainsRegex("\n  ds_config +[A-Za-z]"));
}

TEST(HelpCommandTest, APageIsANameAndNoPath) {
  const ProgramResult result = Help({"../manual/runs"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, StartsWith("dsrun: no command or page '../manual/runs'"));
}

}  // namespace
}  // namespace ds::testing
