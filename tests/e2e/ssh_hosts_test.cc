// The hosts that other tests use are what they claim to be.

#include "tests/support/ssh_hosts.h"
#include "tests/support/requirement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
