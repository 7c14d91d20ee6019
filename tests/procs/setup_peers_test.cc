// scripts/bench/setup_peers.sh, with a python of ours that counts the environments it is asked for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/support/program.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// `python3 -m venv DIR` writes a line to a file and makes a pip that fails while there is no
// network.
constexpr char kPython[] = R"sh(#!/bin/sh
echo installed >>"$FAKE/log"
mkdir -p "$3/bin" && touch "$3/bin/python" && cat >"$3/bin/pip" <<'END'
#!/bin/sh
[ -e "$FAKE/network" ]
END
chmod +x "$3/bin/pip"
)sh";

class SetupPeersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteFileAtomically(Path("python3"), kPython, 0755).ok());
    ASSERT_TRUE(WriteFileAtomically(Path("network"), "").ok());
  }
  fs::path Path(const std::string& name) const { return folder_.path() / name; }

  // A checkout that has the script and nothing else.
  fs::path MakeCheckout(const std::string& name) const {
    const fs::path script = "scripts/bench/setup_peers.sh";
    fs::create_directories((Path(name) / script).parent_path());
    fs::copy_file(DS_SOURCE_DIR / script, Path(name) / script);
    return Path(name);
  }
  std::vector<std::string> Script(const fs::path& checkout) const {
    return {(checkout / "scripts/bench/setup_peers.sh").string()};
  }
  ProgramOptions Options(const std::string& peers_dir = "") const {
    return {.environment = {"FAKE=" + folder_.path().string(), "DSRUN_PEERS_DIR=" + peers_dir,
                            "PATH=" + folder_.path().string() + ":/usr/bin:/bin"}};
  }
  ProgramResult Check(const fs::path& checkout) const {
    std::vector<std::string> command = Script(checkout);
    command.push_back("--check");
    return RunProgram(command, Options());
  }
  std::string Installed() const { return *ReadFile(Path("log")); }

  TemporaryFolder folder_;
};

TEST_F(SetupPeersTest, AnInterruptedInstallationIsNone) {
  const fs::path checkout = MakeCheckout("one");
  EXPECT_EQ(Check(checkout).status, 1);
  fs::remove(Path("network"));
  EXPECT_NE(RunProgram(Script(checkout), Options()).status, 0);
  EXPECT_TRUE(fs::exists(checkout / ".deps/peers/bin/python"));
  const ProgramResult check = Check(checkout);
  EXPECT_EQ(check.status, 1);
  EXPECT_THAT(check.err, HasSubstr("the peers are not there"));
  ASSERT_TRUE(WriteFileAtomically(Path("network"), "").ok());
  const std::string python = (checkout / ".deps/peers/bin/python").string() + "\n";
  EXPECT_EQ(RunProgram(Script(checkout), Options()).out, python);
  EXPECT_EQ(Check(checkout).out, python);
}

TEST_F(SetupPeersTest, CheckoutsThatShareAFolderInstallOnce) {
  const fs::path one = MakeCheckout("one");
  const fs::path other = MakeCheckout("other");
  const std::string shared = Path("shared").string();
  Program first(Script(one), Options(shared));
  Program second(Script(other), Options(shared));
  EXPECT_EQ(first.Wait().status, 0) << first.err();
  EXPECT_EQ(second.Wait().status, 0) << second.err();
  EXPECT_EQ(Installed(), "installed\n");
  for (const fs::path& checkout : {one, other}) {
    EXPECT_EQ(Check(checkout).status, 0);
    EXPECT_TRUE(fs::is_symlink(checkout / ".deps/peers"));
  }
  // A checkout that has its own keeps it.
  const fs::path own = MakeCheckout("own");
  ASSERT_EQ(RunProgram(Script(own), Options()).status, 0);
  ASSERT_EQ(RunProgram(Script(own), Options(shared)).status, 0);
  EXPECT_FALSE(fs::is_symlink(own / ".deps/peers"));
}

// An environment of an older script gets what it lacks, and is not made anew.
TEST_F(SetupPeersTest, ToolsAreAddedToAnEnvironment) {
  const fs::path checkout = MakeCheckout("one");
  ASSERT_EQ(RunProgram(Script(checkout), Options()).status, 0);
  fs::remove(checkout / ".deps/peers/.tools-1");
  EXPECT_EQ(Check(checkout).status, 1);
  // One that the checkout has of its own is not replaced by a shared one, either.
  EXPECT_EQ(RunProgram(Script(checkout), Options(Path("shared").string())).status, 0);
  EXPECT_FALSE(fs::is_symlink(checkout / ".deps/peers"));
  EXPECT_EQ(Installed(), "installed\n");
  EXPECT_EQ(Check(checkout).status, 0);
}

// Relative to where the script is called, not to where the link lies.
TEST_F(SetupPeersTest, TheFolderMayBeARelativePath) {
  const fs::path checkout = MakeCheckout("one");
  ProgramOptions options = Options("shared");
  options.working_directory = folder_.path();
  EXPECT_EQ(RunProgram(Script(checkout), options).status, 0);
  EXPECT_EQ(fs::canonical(checkout / ".deps/peers").parent_path(), fs::canonical(Path("shared")));
  EXPECT_EQ(Check(checkout).status, 0);
}

}  // namespace
}  // namespace ds::testing
