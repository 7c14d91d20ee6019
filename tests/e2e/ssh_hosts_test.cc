// The hosts that other tests use are what they claim to be.

#include "tests/support/ssh_hosts.h"
#include "tests/support/requirement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Ssh(const SshHosts& hosts, int index, const std::string& command) {
  return {"ssh",
          "-F",
          "none",
          "-i",
          hosts.identity().string(),
          "-p",
          std::to_string(hosts.port(index)),
          "-o",
          "BatchMode=yes",
          "-o",
          "ConnectTimeout=2",
          "-o",
          "StrictHostKeyChecking=yes",
          "-o",
          "UserKnownHostsFile=" + (hosts.client_home() / "known").string(),
          hosts.address(index),
          command};
}

void KnowHosts(const SshHosts& hosts) {
  std::ofstream known(hosts.client_home() / "known");
  for (int i = 0; i < 2; ++i) known << hosts.KnownHostsLine(i);
}

class SshHostsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!SshHosts::Missing().empty()) return SkipWithout("namespaces", SshHosts::Missing());
  }
};

TEST_P(SshHostsTest, EveryHostLetsTheUserInAndShowsItsOwnKey) {
  const SshHosts hosts({.namespaces = GetParam()});
  KnowHosts(hosts);
  for (int i = 0; i < 2; ++i) {
    const ProgramResult result = RunProgram(Ssh(hosts, i, "echo $HOME; hostname"));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(hosts.home(i) + "\n"));
    if (hosts.namespaces()) {
      EXPECT_THAT(result.out, HasSubstr(hosts.name(i) + "\n"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SshHostsTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "namespaces" : "loopback"; });

// Never faster; how much slower, the machine says.
TEST(SshHostsFaultsTest, LinksAreAsSlowAsAsked) {
  if (!SshHosts::Missing().empty()) return SkipWithout("namespaces", SshHosts::Missing());
  SshHosts hosts;
  if (!hosts.namespaces()) return SkipWithout("namespaces", hosts.why_not());
  KnowHosts(hosts);
  const auto time_of = [&](const std::string& command, std::size_t bytes) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(RunProgram(Ssh(hosts, 0, command)).out.size(), bytes);
    return std::chrono::steady_clock::now() - begun;
  };
  hosts.Slow(0, {.bytes_per_second = 500'000});
  EXPECT_GE(time_of("head -c 1000000 /dev/zero", 1'000'000), std::chrono::seconds(2));
  // TCP's handshake, both versions, keys, login: five round trips at least.
  hosts.Slow(0, {.delay = std::chrono::milliseconds(100)});
  EXPECT_GE(time_of("true", 0), std::chrono::seconds(1));
}

TEST(SshHostsFaultsTest, LinksAndHostsFailAsAsked) {
  if (!SshHosts::Missing().empty()) return SkipWithout("namespaces", SshHosts::Missing());
  SshHosts hosts;
  if (!hosts.namespaces()) return SkipWithout("namespaces", hosts.why_not());
  KnowHosts(hosts);
  EXPECT_THAT(hosts.Processes(0), IsEmpty());
  const auto status = [&](int index) { return RunProgram(Ssh(hosts, index, "true")).status; };
  hosts.Silence(0);
  EXPECT_EQ(status(0), 255);
  EXPECT_EQ(status(1), 0);
  hosts.Speak(0);
  EXPECT_EQ(status(0), 0);
  hosts.CutLink(0);
  EXPECT_EQ(status(0), 255);
  hosts.RestoreLink(0);
  EXPECT_EQ(status(0), 0);
  hosts.PowerOff(1);
  EXPECT_EQ(status(1), 255);
}

}  // namespace
}  // namespace ds::testing
