// Settings of ssh_config, as dsrun reads them or as OpenSSH's client prints them, on real hosts.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/files.h"
#include "tests/e2e/ssh_job.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

class SshSettingsTest : public SshJob {
 protected:
  void SetUp() override {
    SshJob::SetUp();
    if (IsSkipped()) return;
    options_.count = 1;
    WriteHostfile("node slots=1 workdir=/\n");
  }
  std::filesystem::path Ssh(const std::string& name) {
    return hosts().client_home() / ".ssh" / name;
  }
  // How the host is reached, for below a Host or Match line.
  std::string Way() {
    return "  HostName " + hosts().address(0) + "\n  Port " + std::to_string(hosts().port(0)) +
           "\n";
  }
  // As on a machine without OpenSSH's client.
  void WithoutClient() {
    const std::filesystem::path none = folder() / "none";
    std::filesystem::create_directory(none);
    environment_ = {"PATH=" + none.string()};
  }
};

// No client is asked for what dsrun reads itself.
TEST_F(SshSettingsTest, ReadsTheUsualLinesWithoutAClient) {
  WithoutClient();
  for (const std::string& config : {"Host node\n" + Way(), "Match originalhost n*\n" + Way(),
                                    "Match exec \"test %n = node\"\n" + Way(),
                                    "Match final\nUser nobody\nHost node\nUser root\n" + Way()}) {
    std::ofstream(Ssh("config")) << config;
    const ProgramResult result = Run("true");
    EXPECT_EQ(result.status, 0) << config << result.err;
  }
}

TEST_F(SshSettingsTest, AsksTheClientAboutCanonicalNames) {
  const std::string key = (folder() / "key").string();
  std::filesystem::rename(hosts().identity(), key);
  std::ofstream(Ssh("config")) << "CanonicalizeHostname always\nHost node\n"
                               << Way() << "Match canonical originalhost node\n  IdentityFile "
                               << key << "\n";
  const ProgramResult result = Run("true");
  EXPECT_EQ(result.status, 0) << result.err;
  // The client's default of StrictHostKeyChecking, ask, is not the user's wish.
  EXPECT_THAT(result.err,
              HasSubstr("was unknown; it is remembered in " + Ssh("known_hosts").string()));
}

TEST_F(SshSettingsTest, TheClientsAnswerHoldsEverySetting) {
  const std::string key = (folder() / "key").string();
  std::filesystem::rename(hosts().identity(), key);
  const std::filesystem::path proxy = folder() / "proxy";
  const std::string script = "#!/bin/bash\ntouch " + (folder() / "used").string() +
                             "\nexec 3<>/dev/tcp/$1/$2\ncat <&3 &\nexec cat >&3\n";
  ASSERT_TRUE(WriteFileAtomically(proxy, script, 0755).ok());
  const std::string line = hosts().KnownHostsLine(0);
  std::ofstream(Ssh("mine")) << "frontend" << line.substr(line.find(' '));
  std::ofstream(Ssh("config")) << "CanonicalizeHostname always\nHost node\n"
                               << Way() << "IdentityFile " << key
                               << "\nStrictHostKeyChecking ask\nHostKeyAlias frontend\n"
                               << "UserKnownHostsFile " << Ssh("mine").string()
                               << "\nCiphers aes256-ctr\n"
                               << "ProxyCommand " << proxy.string() << " %h %p\n";
  const ProgramResult result = Run("true");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(folder() / "used"));
  std::filesystem::remove(Ssh("mine"));
  ExpectRefused({}, {"  node  host key  ", "which is unknown, and StrictHostKeyChecking is on"});
}

TEST_F(SshSettingsTest, RefusesWhatNobodyHereCanInterpret) {
  WithoutClient();
  std::ofstream(Ssh("config")) << "CanonicalizeHostname yes\nHost node\n" << Way();
  ExpectRefused({}, {"  node  ",
                     "'CanonicalizeHostname yes' of the SSH configuration cannot be "
                     "honoured",
                     "install ssh"});
}

}  // namespace
}  // namespace ds::testing
