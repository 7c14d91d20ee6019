// What dsrund is as a file.

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/inspect/needed_libraries.h"
#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/procs/network_daemon.h"
#include "tests/support/daemon_calls.h"
#include "tests/support/program.h"
#include "tests/support/requirement.h"

namespace ds::procs {
namespace {

namespace fs = std::filesystem;

using ds::testing::ProgramResult;
using ds::testing::RunProgram;
using ::testing::IsEmpty;

constexpr char kDsrund[] = DS_BIN_DIR "/dsrund";

// The root folder of a host that has nothing but dsrund, at its usual path, and the file systems of
// the kernel. Processes get it by `wrapper`, in a mount namespace of their own.
class BareHost {
 public:
  BareHost() {
    for (const char* name : {"proc", "dev", "tmp"}) fs::create_directory(root() / name);
    const fs::path daemon = root() / fs::path(kDsrund).relative_path();
    fs::create_directories(daemon.parent_path());
    fs::copy_file(kDsrund, daemon);
  }
  std::vector<std::string> wrapper() const {
    const std::string script =
        "mount -t proc none \"$0/proc\" && mount --bind /dev \"$0/dev\" && "
        "exec chroot \"$0\" \"$@\"";
    return {"unshare", "--mount", "--propagation", "private", "sh", "-c", script, root()};
  }
  fs::path root() const { return folder_.path(); }

 private:
  const ds::testing::TemporaryFolder folder_;
};

// It must run on hosts where nothing is installed, or an older C library.
TEST(BinaryTest, NeedsNeitherLoaderNorLibrary) {
  constexpr std::array<std::string_view, 1> kEvery = {""};
  const auto needed = daemon::FindMissingLibraries(kDsrund, kEvery, "");
  ASSERT_TRUE(needed.ok()) << needed.status().message();
  EXPECT_THAT(*needed, IsEmpty());
  const std::string daemon = ReadFile(kDsrund).value();
  Elf64_Ehdr header;
  std::memcpy(&header, daemon.data(), sizeof(header));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment,
                daemon.data() + header.e_phoff + sizeof(segment) * static_cast<std::size_t>(i),
                sizeof(segment));
    EXPECT_NE(segment.p_type, static_cast<Elf64_Word>(PT_INTERP));
  }
}

// Over both families of addresses: a name service would need libraries, too.
TEST(BinaryTest, ServesAJobOnAHostThatHasNothing) {
  const ProgramResult mounts =
      RunProgram({"unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"});
  if (mounts.status != 0) return ds::testing::SkipWithout("mounts", mounts.err);
  for (const char* address : {"127.0.0.1", "::1"}) {
    const BareHost host;
    const NetworkDaemon daemon({.address = address, .wrapper = host.wrapper()});
    ASSERT_TRUE(daemon.ok());
    const auto client = daemon.Connect();
    const auto prepared = Prepare(*client);
    ASSERT_TRUE(prepared.ok()) << prepared.status().message();
    v1::LaunchRequest request = RanksOf(1, {});
    request.mutable_ranks(0)->set_argv(0, kDsrund);
    request.mutable_ranks(0)->add_argv("--version");
    const auto launched = testing::Launch(*client, request);
    ASSERT_TRUE(launched.ok()) << launched.status().message();
    std::string out;
    const Status watched = testing::Watch(
        *client, {kJob, 1, 0}, [&](const v1::Event& event) { out += event.rank_output().data(); });
    EXPECT_TRUE(watched.ok()) << watched.message();
    EXPECT_TRUE(out.starts_with("dsrund ")) << out;
    static_cast<void>(Renew(*client, /*release=*/true));  // its answer may be lost with the daemon
    EXPECT_TRUE(daemon.AwaitEnd());
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
