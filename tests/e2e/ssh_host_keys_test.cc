// Whom dsrun talks to: keys that are pinned, known, revoked, certified or unknown, as the user's
// own SSH would take them.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/files.h"
#include "tests/e2e/ssh_job.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;

class SshHostKeysTest : public SshJob {
 protected:
  std::filesystem::path Ssh(const std::string& name) {
    return hosts().client_home() / ".ssh" / name;
  }
  // Host 0 only, so that the table is short.
  void UseOneHost(const std::string& keys = "") {
    options_.count = 1;
    WriteHostfile(1, keys);
  }
  std::string Fingerprint(int index) {
    const std::filesystem::path file = folder() / "host.pub";
    const std::string line = hosts().KnownHostsLine(index);
    std::ofstream(file) << line.substr(line.find(' ') + 1);
    const std::string shown = RunProgram({"ssh-keygen", "-l", "-f", file.string()}).out;
    const std::size_t start = shown.find("SHA256:");
    return shown.substr(start, shown.find(' ', start) - start);
  }
  // The key of host 0 behind a pattern for all hosts.
  std::string AnyHostLine() {
    const std::string line = hosts().KnownHostsLine(0);
    return "*" + line.substr(line.find(' '));
  }
};

TEST_F(SshHostKeysTest, AnUnknownHostIsAcceptedAndRemembered) {
  UseOneHost();
  std::ofstream(Ssh("config")) << "HashKnownHosts no\n";  // whatever the machine's own says
  std::ofstream(Ssh("known_hosts")) << "# no end of line";
  const ProgramResult first = Run("true");
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.err,
              HasSubstr("host h0: its key " + Fingerprint(0) +
                        " was unknown; it is remembered in " + Ssh("known_hosts").string()));
  const std::string line = hosts().KnownHostsLine(0);
  const std::string kept = line.substr(0, line.rfind(' '));
  EXPECT_THAT(*ReadFile(Ssh("known_hosts")), HasSubstr("# no end of line\n" + kept));
  EXPECT_THAT(*ReadFile(run() / "known_hosts"), HasSubstr(kept));
  const ProgramResult second = Run("true");
  EXPECT_EQ(second.status, 0);
  EXPECT_EQ(second.err, "");
  EXPECT_FALSE(std::filesystem::exists(run() / "known_hosts"));
}

TEST_F(SshHostKeysTest, AKeyThatCannotBeRememberedIsGoodForTheJob) {
  UseOneHost();
  std::ofstream(Ssh("config")) << "UserKnownHostsFile /proc/known_hosts\n";
  const ProgramResult result = Run("true");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("it is remembered for this job only: /proc/known_hosts: "));
  std::ofstream(Ssh("config")) << "UserKnownHostsFile /dev/null\n";
  EXPECT_EQ(Run("true").status, 0);
}

TEST_F(SshHostKeysTest, StrictCheckingRefusesAnUnknownHost) {
  UseOneHost();
  for (const std::string& strict :
       {std::string("StrictHostKeyChecking yes\n"),
        std::string("stricthostkeychecking = \"ask\"\n"),
        "Host other\n  StrictHostKeyChecking no\nHost h0\n  HostName " + hosts().address(0) +
            "\nHost h*\n  StrictHostKeyChecking yes\nHost *\n  StrictHostKeyChecking no\n",
        "Host h0\n  HostName " + hosts().address(0) + "\nMatch host " + hosts().address(0) +
            "\n  StrictHostKeyChecking yes # no surprises\nHost *\n  StrictHostKeyChecking no\n",
        std::string("Match originalhost h0\n  StrictHostKeyChecking yes\n")}) {
    std::ofstream(Ssh("config")) << strict;
    ExpectRefused({}, {"  h0    host key  ", "which is unknown, and StrictHostKeyChecking is on",
                       "hostkey="});
    EXPECT_FALSE(std::filesystem::exists(Ssh("known_hosts"))) << strict;
  }
  std::ofstream(Ssh("known_hosts")) << hosts().KnownHostsLine(0);
  EXPECT_EQ(Run("true").status, 0);
  std::filesystem::remove(Ssh("known_hosts"));
  std::ofstream(Ssh("config")) << "StrictHostKeyChecking accept-new\n";
  EXPECT_EQ(Run("true").status, 0);
}

TEST_F(SshHostKeysTest, ARevokedKeyIsRefusedEvenWhereItIsKnownOrPinned) {
  UseOneHost();
  std::ofstream(Ssh("known_hosts")) << hosts().KnownHostsLine(0) << "  @revoked  " << AnyHostLine();
  ExpectRefused({},
                {"  h0    host key  ", "which " + Ssh("known_hosts").string() + " has revoked"});
  UseOneHost("hostkey=" + Fingerprint(0));
  ExpectRefused({}, {"  h0    host key  ", "has revoked"});
  // Another one's key may be revoked.
  options_.count = 1;
  const std::string other = RunProgram({"cat", Ssh("id_ed25519.pub").string()}).out;
  std::ofstream(Ssh("known_hosts")) << "@revoked * " << other;
  EXPECT_EQ(Run("true").status, 0);
}

TEST_F(SshHostKeysTest, AHostWithACertificateAuthorityIsNotTakenOnTrust) {
  UseOneHost();
  const std::string authority = RunProgram({"cat", Ssh("id_ed25519.pub").string()}).out;
  std::ofstream(Ssh("known_hosts")) << "@cert-authority *.elsewhere.example " << authority;
  EXPECT_EQ(Run("true").status, 0);
  std::ofstream(Ssh("known_hosts")) << "@cert-authority 10.*,127.*,[127.* " << authority;
  ExpectRefused({}, {"  h0    host key  ", "trusts a @cert-authority for it",
                     "--launcher ssh-client", "hostkey="});
  UseOneHost("hostkey=" + Fingerprint(0));
  EXPECT_EQ(Run("true").status, 0);
  UseOneHost();
  std::ofstream(Ssh("known_hosts"), std::ios::app) << hosts().KnownHostsLine(0);
  EXPECT_EQ(Run("true").status, 0);
}

TEST_F(SshHostKeysTest, AHostMustShowTheKeyThatIsPinned) {
  const std::string right = Fingerprint(0);
  const std::string wrong = Fingerprint(1);
  WriteHostfile(hosts().HostfileLine(0, 1, "hostkey=" + wrong) + "\n");
  ExpectRefused({}, {"  h0    host key  ", "shows the key " + right +
                                               ", but hostkey= in the hostfile names another one"});
  // The file is not asked, nor written.
  const std::string line = hosts().KnownHostsLine(0);
  const std::string others = hosts().KnownHostsLine(1);
  const std::string stale = line.substr(0, line.find(' ')) + others.substr(others.find(' '));
  std::ofstream(Ssh("known_hosts")) << stale;
  std::ofstream(Ssh("config")) << "StrictHostKeyChecking yes\n";
  WriteHostfile(hosts().HostfileLine(0, 1, "hostkey=" + wrong + "," + right) + "\n");
  const ProgramResult result = Run("true");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(*ReadFile(Ssh("known_hosts")), stale);
}

TEST_F(SshHostKeysTest, EveryKnownHostsFileOfTheConfigurationCounts) {
  UseOneHost();
  std::ofstream(Ssh("mine")) << "# nobody\n";
  std::ofstream(Ssh("of us all")) << hosts().KnownHostsLine(0);
  const std::string strict = "StrictHostKeyChecking yes\n";
  const std::string both = "~/.ssh/mine \"%d/.ssh/of us all\"\n";
  for (const std::string& files : {"UserKnownHostsFile " + both, "GlobalKnownHostsFile " + both,
                                   "Match host *\nUserKnownHostsFile = " + both}) {
    std::ofstream(Ssh("config")) << strict << files;
    const ProgramResult result = Run("true");
    EXPECT_EQ(result.status, 0) << files << result.err;
  }
  std::ofstream(Ssh("of us all")) << "@revoked " << AnyHostLine();
  ExpectRefused({}, {"  h0    host key  ", Ssh("of us all").string() + " has revoked"});
  std::ofstream(Ssh("config")) << "UserKnownHostsFile ~/.ssh/%C\n";
  ExpectRefused({}, {"  h0    host key  ", "UserKnownHostsFile", "does not support %C",
                     "--launcher ssh-client"});
}

TEST_F(SshHostKeysTest, AnAliasIsTheNameThatAHostIsKnownBy) {
  UseOneHost();
  const std::string key = hosts().KnownHostsLine(0);
  std::ofstream(Ssh("config")) << "StrictHostKeyChecking yes\nHostKeyAlias frontend\n";
  std::ofstream(Ssh("known_hosts")) << key;
  ExpectRefused({}, {"  h0    host key  ", "which is unknown"});
  std::ofstream(Ssh("known_hosts")) << "frontend" << key.substr(key.find(' '));
  EXPECT_EQ(Run("true").status, 0);
}

TEST_F(SshHostKeysTest, NamesAreRememberedHashedWhereTheConfigurationSaysSo) {
  UseOneHost();
  std::ofstream(Ssh("config")) << "HashKnownHosts yes\n";
  ASSERT_EQ(Run("true").status, 0);
  const std::string kept = *ReadFile(Ssh("known_hosts"));
  EXPECT_THAT(kept, ::testing::StartsWith("|1|"));
  EXPECT_THAT(kept, ::testing::Not(HasSubstr(hosts().address(0))));
  const std::string line = hosts().KnownHostsLine(0);
  EXPECT_THAT(RunProgram({"ssh-keygen", "-f", Ssh("known_hosts").string(), "-F",
                          line.substr(0, line.find(' '))})
                  .out,
              HasSubstr("found"));
  std::ofstream(Ssh("config")) << "StrictHostKeyChecking yes\n";
  EXPECT_EQ(Run("true").status, 0) << "it is known";
}

TEST_F(SshHostKeysTest, AKeyOfTheNameWithoutItsPortIsKnown) {
  options_.namespaces = false;  // so that the port is another than 22
  UseOneHost();
  std::ofstream(Ssh("config")) << "StrictHostKeyChecking yes\n";
  const std::string line = hosts().KnownHostsLine(0);
  std::ofstream(Ssh("known_hosts")) << hosts().address(0) << line.substr(line.find(' '));
  EXPECT_EQ(Run("true").status, 0);
}

TEST_F(SshHostKeysTest, AFileThatCannotBeReadIsNoEmptyOne) {
  UseOneHost();
  std::filesystem::create_symlink("known_hosts", Ssh("known_hosts"));
  ExpectRefused({}, {"  h0    host key  " + Ssh("known_hosts").string() + ": Too many levels",
                     "must be readable"});
}

TEST_F(SshHostKeysTest, HostsWithOneAliasShowOneKey) {
  WriteHostfile(1);
  std::ofstream(Ssh("config")) << "HostKeyAlias frontend\n";
  ExpectRefused({}, {"1 of 2 hosts cannot be used:", "  host key  ", "holds another one for it"});
}

TEST_F(SshHostKeysTest, AListOfRevokedKeysIsHeldTo) {
  WriteHostfile(hosts().HostfileLine(0, 1) + "\n");
  const std::string list = Ssh("revoked").string();
  std::ofstream(Ssh("config")) << "RevokedHostKeys " << list << "\n";
  ExpectRefused({}, {"  h0    host key  ", list + ": No such file", "must be readable"});
  const std::string line = hosts().KnownHostsLine(0);
  const std::string others = hosts().KnownHostsLine(1);
  std::ofstream(list) << others.substr(others.find(' ') + 1);
  EXPECT_EQ(Run("true").status, 0);
  std::ofstream(list, std::ios::app) << "# gone\n" << line.substr(line.find(' ') + 1);
  ExpectRefused({}, {"  h0    host key  ", "which " + list + " has revoked"});
  RunProgram({"ssh-keygen", "-k", "-f", list, hosts().identity().string() + ".pub"});
  ExpectRefused({}, {"  h0    host key  ", "is a binary list", "--launcher ssh-client"});
}

}  // namespace
}  // namespace ds::testing
