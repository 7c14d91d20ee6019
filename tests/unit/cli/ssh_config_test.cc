#include "cli/remote/ssh_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/remote/ssh_settings.h"
#include "tests/support/program.h"

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SshConfigTest : public ::testing::Test {
 protected:
  HostResult<SshConfig::Reading> Read(const std::string& own, const std::string& system = "") {
    std::ofstream(folder_.path() / "own") << own;
    std::ofstream(folder_.path() / "system") << system;
    const SshConfig::File files[] = {{folder_.path() / "own", folder_.path()},
                                     {folder_.path() / "system", folder_.path()}};
    commands_.clear();
    return SshConfig::Read(files, {.host = "gpu7",
                                   .user = user_,
                                   .local_user = "me",
                                   .run = [this](const std::string& command) {
                                     commands_.push_back(command);
                                     return HostResult<bool>(command.starts_with("true"));
                                   }});
  }
  // The settings that are for libssh.
  std::string Options(const std::string& own, const std::string& system = "") {
    const auto reading = Read(own, system);
    if (!reading.ok()) return reading.failure().message;
    EXPECT_EQ(reading->beyond, "") << own;
    return reading->settings.TextForLibssh();
  }
  std::string First(const std::string& own, const char* keyword) {
    return Read(own)->settings.FirstWord(keyword);
  }

  ds::testing::TemporaryFolder folder_;
  std::string user_;
  std::vector<std::string> commands_;
};

TEST_F(SshConfigTest, LinesOfOtherHostsAreLeftOut) {
  EXPECT_EQ(Options("User a\nHost gpu? !gpu8\n  Port 1\nHost other *8\n  Port 2\nHost *\nUser b\n"),
            "user a\nport 1\nuser b\n");
  EXPECT_EQ(Options("Host=gpu7 # a comment\nPort=1\nHost GPU7\nPort 2\n", "Port 3 # another\n"),
            "port 1\nport 3\n");
  EXPECT_EQ(Options("Host \"gpu7\"\n  Port 1\n# Host x\n\n  User a\n"), "port 1\nuser a\n");
}

// The first value counts, and so does the order of what stands below Match and below Host.
TEST_F(SshConfigTest, MatchHostAppliesInOrder) {
  EXPECT_EQ(Options("Match host gpu*\n  User alice\nHost *\n  User bob\n"),
            "user alice\nuser bob\n");
  EXPECT_EQ(Options("Match !host gpu7\n  User alice\nMatch originalhost GPU7\n  User carol\n"),
            "user carol\n");
  EXPECT_EQ(Options("Match all\n  User alice\n"), "user alice\n");
}

TEST_F(SshConfigTest, MatchHostMeansTheHostNameAndHostTheNameThatWasGiven) {
  EXPECT_EQ(Options("Host gpu7\n  HostName 10.0.0.7\nMatch host 10.0.0.*,x\n  User a\n"
                    "Match host gpu7\n  User b\nHost gpu7\n  User c\nMatch originalhost gpu7\n  "
                    "User d\n"),
            "hostname 10.0.0.7\nuser a\nuser c\nuser d\n");
  EXPECT_EQ(Options("HostName %h.example\n", "Match host gpu7.example\nUser a\n"),
            "hostname %h.example\nuser a\n");
}

TEST_F(SshConfigTest, MatchUserMeansTheUserSoFar) {
  EXPECT_EQ(Options("Match user me\nPort 1\nMatch localuser me\nPort 2\nUser you\nMatch user me\n"
                    "Port 3\nMatch user you\nPort 4\n"),
            "port 1\nport 2\nuser you\nport 4\n");
  user_ = "root";  // of the hostfile
  EXPECT_EQ(Options("User you\nMatch user you\nPort 1\nMatch user root localuser !me\nPort 2\n"
                    "Match user root localuser me\nPort 3\n"),
            "user you\nport 3\n");
}

TEST_F(SshConfigTest, MatchExecRunsTheCommandWhereItDecides) {
  EXPECT_EQ(
      Options("HostName 10.0.0.7\nMatch host 10.0.0.7 exec \"true %h %n %p %r %u %%\" !user x\n"
              "  Port 1\nMatch !exec false\nPort 2\nMatch exec \"false\"\nPort 3\n"),
      "hostname 10.0.0.7\nport 1\nport 2\n");
  EXPECT_THAT(commands_, ElementsAre("true 10.0.0.7 gpu7 22 me me %", "false", "false"));
  EXPECT_EQ(Options("Match host other exec \"true\"\n  Port 1\n"), "");
  EXPECT_THAT(commands_, IsEmpty());
}

TEST_F(SshConfigTest, MatchFinalAppliesInASecondReading) {
  EXPECT_EQ(Options("Match final\n  Port 2\nMatch final all\n  User b\nMatch !final\n  User a\n"),
            "user a\nport 2\nuser b\n");
  EXPECT_EQ(Options("Match canonical\n  Port 2\n"), "") << "it asks for no second reading";
  // Host lines then mean HostName.
  EXPECT_EQ(Options("Match final host 10.0.0.7\nPort 2\nHost 10.0.0.*\nUser late\nHost gpu7\n"
                    "HostName 10.0.0.7\n"),
            "hostname 10.0.0.7\nport 2\nuser late\n");
}

TEST_F(SshConfigTest, NamesTheLineThatOnlyOpenSshInterprets) {
  const auto beyond = [&](const std::string& own) { return Read(own)->beyond; };
  EXPECT_EQ(beyond("Match tagged fast  # why\n  Port 2222\n"), "Match tagged fast");
  EXPECT_EQ(beyond("Match localnetwork 10.0.0.0/8\nUser a\nMatch tagged x\nPort 1\n"),
            "Match localnetwork 10.0.0.0/8");
  EXPECT_EQ(beyond("Match exec \"true %C\"\nPort 1\n"), "Match exec \"true %C\"");
  EXPECT_EQ(beyond("CanonicalizeHostname yes\n"), "CanonicalizeHostname yes");
  EXPECT_EQ(beyond("CanonicalizeHostname always\n"), "CanonicalizeHostname always");
  for (const char* none :
       {"Port 1\n", "Match tagged fast host other\n  Port 2222\n", "Match tagged fast\n",
        "Match tagged fast\nHost other\n  Port 2222\n", "CanonicalizeHostname no\n",
        "Host other\nCanonicalizeHostname yes\n", "CanonicalDomains example\n"}) {
    EXPECT_EQ(beyond(none), "") << none;
  }
}

TEST_F(SshConfigTest, AnIncludedFileCountsWhereItsIncludeDoes) {
  std::ofstream(folder_.path() / "more") << "Port 1\nHost gpu7\nUser a\nHost x\nUser b\n";
  EXPECT_EQ(Options("Include more\nUser c\n"), "port 1\nuser a\nuser c\n");
  EXPECT_EQ(Options("Include mor? none-*\nUser c\n"), "port 1\nuser a\nuser c\n");
  EXPECT_EQ(Options("Include no-such no-folder/* no-folder/x\nUser c\n"), "user c\n");
  EXPECT_EQ(Options("Host x\nInclude more\nHost *\nUser c\n"), "user c\n");
  EXPECT_EQ(Options("Match user me\nInclude more\nUser c\n"), "port 1\nuser a\nuser c\n");
  std::ofstream(folder_.path() / "round") << "Include round\n";
  EXPECT_THAT(Options("Include round\n"), HasSubstr("too many levels"));
}

// Not being able to read a file is no reason to go without it.
TEST_F(SshConfigTest, AFileThatCannotBeReadIsAnError) {
  std::filesystem::create_symlink("loop", folder_.path() / "loop");
  EXPECT_THAT(Options("Include loop\n"), HasSubstr("loop: Too many levels of symbolic links"));
  EXPECT_THAT(Options("Include loo?\n"), HasSubstr("loop: Too many levels of symbolic links"));
  EXPECT_THAT(Options("Include loop/*\n"), HasSubstr("loop"));
  const SshConfig::File file[] = {{folder_.path() / "loop", folder_.path()}};
  const auto reading = SshConfig::Read(file, {.host = "gpu7", .run = nullptr});
  ASSERT_FALSE(reading.ok());
  EXPECT_THAT(reading.failure().message, HasSubstr("Too many levels of symbolic links"));
}

TEST_F(SshConfigTest, StrictnessIsNotMissed) {
  const char* const kStrict = "stricthostkeychecking";
  EXPECT_EQ(First("StrictHostKeyChecking yes # no surprises\n", kStrict), "yes");
  EXPECT_EQ(First("stricthostkeychecking = \"ask\"\n", kStrict), "ask");
  EXPECT_EQ(First("Match host gpu7\nStrictHostKeyChecking yes\nHost *\nStrictHostKeyChecking no\n",
                  kStrict),
            "yes");
  EXPECT_EQ(First("Match host gpu7\nHostName 10.0.0.7\nStrictHostKeyChecking yes\n", kStrict),
            "yes");
  EXPECT_EQ(First("Match final host gpu7\nStrictHostKeyChecking yes\n", kStrict), "yes");
  EXPECT_EQ(First("Match final host other\nStrictHostKeyChecking yes\n", kStrict), "");
}

TEST(SshSettingsTest, ReadsWhatOpenSshPrints) {
  const SshSettings settings = SshSettings::Parse(
      "host gpu7\nuser me\nhostname 10.0.0.2\nport 22\nidentityfile ~/.ssh/a\nidentityfile "
      "~/.ssh/b\nrekeylimit 0 0\nproxycommand nc -x \"a b\" %h\nuserknownhostsfile /a /b\n"
      "controlmaster\n");
  EXPECT_EQ(settings.First("hostname"), "10.0.0.2");
  EXPECT_EQ(settings.First("userknownhostsfile"), "/a /b");
  EXPECT_EQ(settings.FirstWord("userknownhostsfile"), "/a");
  EXPECT_EQ(settings.First("proxyjump"), "");
  EXPECT_THAT(settings.All("identityfile"), ElementsAre("~/.ssh/a", "~/.ssh/b"));
  EXPECT_EQ(settings.TextForLibssh(),
            "user me\nhostname 10.0.0.2\nport 22\nproxycommand nc -x \"a b\" %h\n");
}

}  // namespace
}  // namespace ds::cli
