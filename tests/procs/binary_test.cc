// What dsrund is as a file.

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

#include "daemon/host/needed_libraries.h"
#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::procs {
namespace {

constexpr char kDsrund[] = DS_BIN_DIR "/dsrund";

// It must run on hosts where nothing is installed.
TEST(BinaryTest, NeedsNoLibraryButLibcs) {
  constexpr std::array<std::string_view, 1> kEvery = {""};
  const auto needed = daemon::FindMissingLibraries(kDsrund, kEvery, "");
  ASSERT_TRUE(needed.ok()) << needed.status().message();
  EXPECT_FALSE(needed->empty());
  for (const std::string& name : *needed) {
    EXPECT_TRUE(name.starts_with("libc.so") || name.starts_with("libm.so") ||
                name.starts_with("ld-linux"))
        << name;
  }
}

// dsrun sends the file to hosts; debuggers find the symbols in the file that it names.
TEST(BinaryTest, HasItsSymbolsInAnotherFile) {
  const auto daemon = ReadFile(kDsrund), symbols = ReadFile(DS_BIN_DIR "/dsrund.debug");
  ASSERT_TRUE(daemon.ok() && symbols.ok());
  EXPECT_EQ(daemon->find(".symtab"), std::string::npos);
  EXPECT_NE(daemon->find("dsrund.debug"), std::string::npos);
  EXPECT_NE(symbols->find(".debug_info"), std::string::npos);
}

TEST(BinaryTest, SaysItsVersion) {
  const auto result = ds::testing::RunProgram({kDsrund, "--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(result.out.starts_with("dsrund ")) << result.out;
}

TEST(BinaryTest, RefusesAFolderThatOthersCanEnter) {
  const auto result =
      ds::testing::RunProgram({kDsrund, "--connection-fd=0", "--folder=/tmp", "--job=j"});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("/tmp: the folder must be yours alone"), std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace ds::procs
