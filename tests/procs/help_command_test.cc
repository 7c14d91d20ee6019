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
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ProgramResult Help(const std::vector<std::string>& words) {
  std::vector<std::string> line = {DS_BIN_DIR "/dsrun", "help"};
  line.insert(line.end(), words.begin(), words.end());
  return RunProgram(line, {});
}

// Names of keys and lists without blanks, which a user copies, stay whole.
bool IsOneWord(const std::string& line) {
  const std::size_t word = line.find_first_not_of(' ');
  return line.find(' ', word) == std::string::npos;
}

void ExpectFits80Columns(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.size() <= 80 || IsOneWord(line)) << line;
  }
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
  EXPECT_THAT(result.out, ContainsRegex("\n`zero_optimization.stage`\n  type +int, at least 0"));
  ExpectFits80Columns(result.out);
}

// The texts of rows begin in one column, also on the lines that continue them.
TEST(HelpCommandTest, IndentsTheLinesOfAnExitStatus) {
  const std::string overview = Help({}).out;
  EXPECT_THAT(overview, ContainsRegex("\n  3   \\(243\\) [^\n]+\n            [a-z]+[^\n]*\n  4 "));
}

// Each heading appears once, in this order, also if its flags are declared in several places.
TEST(HelpCommandTest, GroupsTheFlagsOfTrainUnderHeadings) {
  const std::string text = Help({"train"}).out;
  std::size_t place = 0;
  for (const char* const heading :
       {"Options", "Model and configuration", "Data", "Batch size and number of steps",
        "Optimizer and learning rate", "Parallelism and communication", "Memory and offload",
        "Fine-tuning", "Evaluation", "Checkpoints and the trained model", "Launch: hosts and ranks",
        "Launch: network", "Launch: output and exit status"}) {
    const std::string line = "\n\n" + std::string(heading) + ":\n  -";
    const std::size_t found = text.find(line);
    ASSERT_NE(found, std::string::npos) << heading;
    EXPECT_GT(found, place) << heading;
    EXPECT_EQ(text.find(line, found + 1), std::string::npos) << heading;
    place = found;
  }
  EXPECT_THAT(text, Not(ContainsRegex("\n\n\n[^\n]")));
  EXPECT_THAT(text, Not(HasSubstr("--rdzv_backend"))) << "a flag of torchrun, which is hidden";
}

TEST(HelpCommandTest, HelpOfEveryCommandFits80Columns) {
  for (const char* const command :
       {"train", "resume", "run", "plan", "bench", "report", "checkpoint", "check", "elastic",
        "estimate", "tokenize", "generate", "translate", "completion", "help", "version"}) {
    SCOPED_TRACE(command);
    const std::string text = Help({command}).out;
    EXPECT_NE(text, "");
    ExpectFits80Columns(text);
  }
}

TEST(HelpCommandTest, ArgumentsWithoutADashHaveNoTypeOfTheLibrary) {
  for (const char* const command : {"checkpoint", "resume", "check", "completion", "tokenize"}) {
    const std::string text = Help({command}).out;
    const std::string arguments = text.substr(0, text.find("Options:"));
    EXPECT_THAT(arguments, HasSubstr("\nPositionals:\n"));
    EXPECT_THAT(arguments, Not(HasSubstr("TEXT"))) << command;
    EXPECT_THAT(arguments, Not(HasSubstr("REQUIRED"))) << command;
  }
}

TEST(HelpCommandTest, APageIsANameAndNoPath) {
  const ProgramResult result = Help({"../manual/runs"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, StartsWith("dsrun: no command or page '../manual/runs'"));
}

}  // namespace
}  // namespace ds::testing
