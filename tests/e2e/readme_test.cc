// Every command of README.md is run as it is written there, in a folder that looks like a checkout.
//
// Not run here, each for its reason: `scripts/test.sh` (it runs this test), `cmake --install`
// (package_test installs into a folder of its own).

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "runtime/base/files.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {
namespace fs = std::filesystem;

std::vector<std::string> CommandsOfReadme() {
  std::istringstream readme(*ReadFile(DS_SOURCE_DIR "/README.md"));
  std::vector<std::string> commands;
  for (std::string line; std::getline(readme, line);) {
    for (const char* program : {"    build/bin/", "    scripts/run.sh"}) {
      if (line.starts_with(program)) commands.push_back(line.substr(4));
    }
  }
  return commands;
}

std::vector<std::string> Words(const std::string& command) {
  std::istringstream stream(command);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(ReadmeTest, EveryCommandRuns) {
  const auto commands = CommandsOfReadme();
  ASSERT_GE(commands.size(), 6u) << "README.md has lost its commands";
  TemporaryFolder folder;
  for (const char* name : {"configs", "hostfile_examples", "scripts", "README.md"}) {
    fs::create_symlink(fs::path(DS_SOURCE_DIR) / name, folder.path() / name);
  }
  fs::create_symlink(fs::path(DS_BIN_DIR).parent_path(), folder.path() / "build");
  for (const std::string& command : commands) {
    const auto result = RunProgram(Words(command), {.working_directory = folder.path()});
    // A report says 3 on a machine that could not run a job; that is the machine's state, not
    // README's.
    const bool judged = command.find("dsrun report") != std::string::npos && result.status == 3;
    EXPECT_TRUE(result.status == 0 || judged) << command << "\n" << result.out << result.err;
  }
}

}  // namespace
}  // namespace ds::testing
