// Command lines, by the text cases in tests/cases/command_line.
//
// The input is a shell script that runs in an empty folder, with dsrun in PATH. The output is what
// a terminal shows, and the exit status of the last command; no case may leave a run directory.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/places.h"
#include "tests/support/case_file.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

std::string RunScript(const std::string& script) {
  const TemporaryFolder folder;
  const ProgramResult result =
      RunProgram({"/bin/sh", "-c", "exec 2>&1\n" + script},
                 {.environment = {std::string("PATH=" DS_BIN_DIR ":") + std::getenv("PATH")},
                  .working_directory = folder.path()});
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "runs")) << script;
  return result.out + "[exit status " + std::to_string(result.status) + "]";
}

class CommandLineCases : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(CommandLineCases, GiveTheExpectedOutput) { ExpectCases(GetParam(), RunScript); }

INSTANTIATE_TEST_SUITE_P(Files, CommandLineCases,
                         ::testing::ValuesIn(ListCaseFiles("command_line")), CaseFileName);

}  // namespace
}  // namespace ds::testing
