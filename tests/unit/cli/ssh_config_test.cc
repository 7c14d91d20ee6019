#include "cli/remote/ssh_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/program.h"

namespace ds::cli {
namespace {

using ::testing::HasSubstr;

class SshConfigTest : public ::testing::Test {
 protected:
  StatusOr<SshConfig> Read(const std::string& own, const std::string& system = "") {
    std::ofstream(folder_.path() / "own") << own;
    std::ofstream(folder_.path() / "system") << system;
    const SshConfig::File files[] = {{folder_.path() / "own", folder_.path()},
                                     {folder_.path() / "system", folder_.path()}};
    return SshConfig::Read(files, "gpu7");
  }
  std::string Options(const std::string& own, const std::string& system = "") {
    return Read(own, system).value().text(SshConfig::kOptions);
  }
  // The word of StrictHostKeyChecking that counts.
  std::string Strictness(const std::string& own) {
    const std::string text = Read(own).value().text(SshConfig::kKeys);
    const std::size_t at = text.find("ProxyCommand ");
    if (at == std::string::npos) return "";
    return SshConfig::Decode(text.substr(at + 13, text.find('\n', at) - at - 13));
  }

  ds::testing::TemporaryFolder folder_;
};

TEST_F(SshConfigTest, LinesOfOtherHostsAreLeftOut) {
  EXPECT_EQ(Options("User a\nHost gpu? !gpu8\n  Port 1\nHost other *8\n  Port 2\nHost *\nUser b\n"),
            "User a\nPort 1\nUser b\n");
  EXPECT_EQ(Options("Host=gpu7 # a comment\nPort=1\nHost GPU7\nPort 2\n", "Port 3\n"),
            "Port 1\nPort 3\n");
  EXPECT_EQ(Options("Host \"gpu7\"\n  Port 1\n# Host x\n\n  User a\n"), "Port 1\nUser a\n");
}

TEST_F(SshConfigTest, ReportsSkippedMatchBlocksOfThisHost) {
  const auto passed_over = [&](const std::string& own) { return Read(own)->passed_over(); };
  EXPECT_EQ(passed_over("Match final host gpu*  # why\n  Port 2222\n"), "Match final host gpu*");
  EXPECT_EQ(
      passed_over("Match canonical originalhost gpu7\nUser a\nMatch final host gpu7\nPort 1\n"),
      "Match canonical originalhost gpu7");
  EXPECT_EQ(passed_over("Match tagged fast\n  Port 2222\n"), "Match tagged fast");
  for (const char* none :
       {"Port 1\n", "Match final host other\n  Port 2222\n", "Match final all\n  Ciphers x\n",
        "Match final host gpu7\n", "Match final host gpu7\nHost other\n  Port 2222\n",
        "Match host gpu7\n  Port 2222\n"}) {
    EXPECT_EQ(passed_over(none), "") << none;
  }
}

// The first value counts, and so does the order of what stands below Match and below Host.
TEST_F(SshConfigTest, MatchHostAppliesInOrder) {
  EXPECT_EQ(Options("Match host gpu*\n  User alice\nHost *\n  User bob\n"),
            "User alice\nUser bob\n");
  EXPECT_EQ(Options("Match !host gpu7\n  User alice\nMatch originalhost GPU7\n  User carol\n"),
            "User carol\n");
  EXPECT_EQ(Options("Match all\n  User alice\n"), "User alice\n");
}

TEST_F(SshConfigTest, MatchHostMeansTheHostNameAndHostTheNameThatWasGiven) {
  EXPECT_EQ(Options("Host gpu7\n  HostName 10.0.0.7\nMatch host 10.0.0.*,x\n  User a\n"
                    "Match host gpu7\n  User b\nHost gpu7\n  User c\nMatch originalhost gpu7\n  "
                    "User d\n"),
            "HostName 10.0.0.7\nUser a\nUser c\nUser d\n");
  EXPECT_EQ(Options("HostName 10.0.0.7\n", "Match host 10.0.0.7\nUser a\n"),
            "HostName 10.0.0.7\nUser a\n");
}

TEST_F(SshConfigTest, LeavesOtherTokensToLibssh) {
  EXPECT_EQ(Options("Match host gpu7 exec \"test -e /x\" !user bob\n  Port 1\nHost *\nPort 2\n"),
            "Match exec \"test -e /x\" !user \"bob\"\nPort 1\nMatch all\nPort 2\n");
  EXPECT_EQ(Options("Match host other exec \"test -e /x\"\n  Port 1\n"), "");
}

TEST_F(SshConfigTest, AnIncludedFileCountsWhereItsIncludeDoes) {
  std::ofstream(folder_.path() / "more") << "Port 1\nHost gpu7\nUser a\nHost x\nUser b\n";
  EXPECT_EQ(Options("Include more\nUser c\n"), "Port 1\nUser a\nUser c\n");
  EXPECT_EQ(Options("Host x\nInclude more\nHost *\nUser c\n"), "User c\n");
  EXPECT_EQ(Options("Match user me\nInclude more\nUser c\n"),
            "Match user \"me\"\nPort 1\nUser a\nUser c\n");
  std::ofstream(folder_.path() / "round") << "Include round\n";
  EXPECT_THAT(Read("Include round\n").status().message(), HasSubstr("too many levels"));
}

TEST_F(SshConfigTest, StrictnessIsNotMissed) {
  EXPECT_EQ(Strictness("StrictHostKeyChecking yes # no surprises\n"), "yes ");
  EXPECT_EQ(Strictness("Match host gpu7\nStrictHostKeyChecking yes\nHost *\n"
                       "StrictHostKeyChecking no\n"),
            "yes");
  EXPECT_EQ(Strictness("Match host gpu7\nHostName 10.0.0.7\nStrictHostKeyChecking yes\n"), "yes");
  EXPECT_EQ(Strictness("Match originalhost gpu7\nStrictHostKeyChecking yes\n"), "yes");
  // Whether such lines count cannot be told here.
  EXPECT_EQ(Strictness("Match final host gpu7\nStrictHostKeyChecking yes\n"), "yes");
  EXPECT_EQ(Strictness("Match localnetwork 10.0.0.0/8\nStrictHostKeyChecking ask\n"), "ask");
  EXPECT_EQ(Strictness("Match localnetwork 10.0.0.0/8\nStrictHostKeyChecking no\n"), "");
  EXPECT_EQ(Strictness("Match final host other\nStrictHostKeyChecking yes\n"), "");
}

TEST_F(SshConfigTest, AWordOutsideTheConfigurationIsIgnored) {
  EXPECT_EQ(SshConfig::Decode("x796573"), "yes");
  EXPECT_EQ(SshConfig::Decode("x"), "");
  for (const char* word :
       {"", "796573", "x7965731", "x7z", "x79 6", "x-1", "x+1", "~/.ssh/known"}) {
    EXPECT_EQ(SshConfig::Decode(word), "") << word;
  }
}

}  // namespace
}  // namespace ds::cli
