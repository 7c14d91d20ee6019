// Jobs over OpenSSH's own client: what it does by itself, what it is kept from, how it fails.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/files.h"
#include "tests/e2e/ssh_job.h"

namespace ds::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SshClientTest : public SshJob {
 protected:
  void SetUp() override {
    SshJob::SetUp();
    launcher_ = "ssh-client";
  }
  std::filesystem::path Ssh(const std::string& name) {
    return hosts().client_home() / ".ssh" / name;
  }
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
  // The line of host 0 with the key of host 1.
  std::string StaleLine() {
    const std::string line = hosts().KnownHostsLine(0);
    const std::string others = hosts().KnownHostsLine(1);
    return line.substr(0, line.find(' ')) + others.substr(others.find(' '));
  }
};

TEST_F(SshClientTest, AnUnknownHostIsItsConfigurationsToAccept) {
  UseOneHost();
  const ProgramResult accepted = Run("echo rank $RANK");
  EXPECT_EQ(accepted.status, 0) << accepted.err;
  EXPECT_THAT(accepted.out, HasSubstr("0@h0: rank 0\n"));
  EXPECT_THAT(accepted.err, HasSubstr("host h0: ssh reports: Warning: Permanently added "));
  std::filesystem::remove(Ssh("known_hosts"));
  std::ofstream(Ssh("config")) << "StrictHostKeyChecking ask\n";
  ExpectRefused({}, {"  h0    host key  ssh h0: No ", "host key is known for", "hostkey="});
}

TEST_F(SshClientTest, RefusesAChangedHostKeyDespiteTheConfiguration) {
  WriteHostfile(hosts().HostfileLine(0, 1) + "\n");
  std::ofstream(Ssh("known_hosts")) << StaleLine();
  for (const char* strict : {"accept-new", "no", "off"}) {
    std::ofstream(Ssh("config")) << "StrictHostKeyChecking " << strict << "\n";
    ExpectRefused({}, {"  h0    host key  ssh h0: Offending ED25519 key in ", "ssh-keygen -R h0"});
  }
}

TEST_F(SshClientTest, AHostMustShowTheKeyThatIsPinned) {
  const std::string right = Fingerprint(0);
  const std::string wrong = Fingerprint(1);
  std::ofstream(Ssh("known_hosts")) << hosts().KnownHostsLine(0);
  WriteHostfile(hosts().HostfileLine(0, 1, "hostkey=" + wrong) + "\n");
  ExpectRefused({}, {"  h0    host key  ", "host key is known for"});
  // The file is not asked, nor written.
  std::ofstream(Ssh("known_hosts")) << StaleLine();
  WriteHostfile(hosts().HostfileLine(0, 1, "hostkey=" + wrong + "," + right) + "\n");
  const ProgramResult result = Run("true");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(*ReadFile(Ssh("known_hosts")), StaleLine());
  const std::string line = hosts().KnownHostsLine(0);
  std::ofstream(Ssh("known_hosts")) << "@revoked *" << line.substr(line.find(' '));
  ExpectRefused({}, {"  h0    host key  ", "evoked"});
}

TEST_F(SshClientTest, AHostThatLetsNobodyInIsAVerdict) {
  UseOneHost();
  std::filesystem::remove(hosts().identity());
  std::filesystem::remove(hosts().identity().string() + ".pub");
  ExpectRefused({}, {"  h0    authentication  ssh h0: ", "Permission denied (publickey)",
                     "'ssh h0' must work without a question"});
}

TEST_F(SshClientTest, DistinguishesHostsThatCannotBeReached) {
  WriteHostfile("no-such-host.invalid slots=1\nshut slots=1 address=" + hosts().address(1) +
                " port=1\n");
  ExpectRefused({"--ssh_timeout", "3"},
                {"2 of 2 hosts cannot be used:", "  no-such-host.invalid  name ",
                 "  shut                  refused  ssh shut: ", "-> is sshd running there?"});
}

TEST_F(SshClientTest, ASilentHostIsATimeout) {
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  hosts().Silence(0);
  ExpectRefused({"--ssh_timeout", "8"}, {"1 of 2 hosts cannot be used:", "  h0    timeout  "});
}

TEST_F(SshClientTest, AKilledSshIsAFailureOfItsHost) {
  UseOneHost();
  // Between login and placing: whoever looks for dsrund kills the ssh that asks.
  std::ofstream(hosts().client_home() / "bin" / "ssh")
      << "#!/bin/sh\ncase \"$*\" in *dsrun-end*) kill -9 $$;; esac\nexec /usr/bin/ssh -F "
      << Ssh("client_config").string() << " \"$@\"\n";
  ExpectRefused({}, {"  h0    ssh  ssh h0: it ended without a word"});
  ExpectNothingLeft(0);
}

TEST_F(SshClientTest, WithoutAnSshReportsIt) {
  UseOneHost();
  const std::filesystem::path none = folder() / "none";
  std::filesystem::create_directory(none);
  environment_ = {"PATH=" + none.string()};
  ExpectRefused({}, {"  h0    ssh  ", "not found", "needs OpenSSH's client"});
}

// What sites with one-time passwords do: they log in once, by hand.
TEST_F(SshClientTest, AMasterOfTheUsersIsUsedAndStays) {
  UseOneHost();
  std::ofstream(Ssh("config")) << "ControlPath " << (folder() / "master").string() << "\n";
  const std::string ssh = (hosts().client_home() / "bin" / "ssh").string();
  const std::vector<std::string> to = {"-o", "HostName=" + hosts().address(0), "-p",
                                       std::to_string(hosts().port(0)), "h0"};
  const auto with = [&](std::vector<std::string> command) {
    command.insert(command.end(), to.begin(), to.end());
    return command;
  };
  std::vector<std::string> command = with({ssh, "-o", "ControlMaster=yes"});
  command.push_back("echo in; exec sleep 60");
  Program master(command);
  ASSERT_TRUE(master.WaitForOutput("in\n")) << master.err();
  std::filesystem::rename(hosts().identity(), folder() / "away");  // nobody else gets in
  const ProgramResult result = Run("echo rank $RANK");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("0@h0: rank 0\n"));
  EXPECT_EQ(RunProgram(with({ssh, "-O", "exit"})).status, 0) << "it is still there";
  ExpectRefused({}, {"  h0    authentication  "});
}

// Certificates are what the built-in SSH cannot do.
TEST_F(SshClientTest, ACertificateOfTheHostIsEnough) {
  options_.count = 1;
  options_.sshd_config = {"HostCertificate /run/host/host_key-cert.pub"};
  if (!hosts().namespaces()) return SkipWithout("namespaces", hosts().why_not());
  WriteHostfile(1);
  const std::string authority = (folder() / "authority").string();
  RunProgram({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", authority});
  std::ofstream(folder() / "host_key.pub")
      << hosts().KnownHostsLine(0).substr(hosts().KnownHostsLine(0).find(' ') + 1);
  RunProgram({"ssh-keygen", "-q", "-s", authority, "-I", "h0", "-h",
              (folder() / "host_key.pub").string()});
  const std::string certificate = *ReadFile(folder() / "host_key-cert.pub");
  OnHost(0, "echo '" + certificate + "' >/run/host/host_key-cert.pub");
  std::ofstream(Ssh("known_hosts")) << "@cert-authority * " << *ReadFile(authority + ".pub");
  std::ofstream(Ssh("config")) << "StrictHostKeyChecking yes\n";
  const ProgramResult result = Run("echo rank $RANK");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("Permanently")));
}

}  // namespace
}  // namespace ds::testing
