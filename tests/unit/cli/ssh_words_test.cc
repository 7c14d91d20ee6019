#include "cli/remote/ssh_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using ::testing::HasSubstr;

TEST(SshWordsTest, NoStrictnessThatAcceptsChangedKeysOrAsks) {
  for (const char* lenient : {"false", "no", "off"}) {
    EXPECT_EQ(AllowedStrictness(lenient), "accept-new");
  }
  EXPECT_EQ(AllowedStrictness("ask"), "yes");
  for (const char* same : {"", "true", "yes", "accept-new"}) {
    EXPECT_EQ(AllowedStrictness(same), same);
  }
}

TEST(SshWordsTest, SaysWhatIsWrongWithANameOfAHost) {
  for (const std::string& good :
       {std::string("node"), std::string("a.b-0.c."), std::string("fd00::2"),
        std::string("10.0.0.2"), std::string(63, 'a'), std::string("h_0")}) {
    EXPECT_EQ(FindNameFault(good), "") << good;
  }
  EXPECT_THAT(FindNameFault("knoten-\xc3\xa4"), HasSubstr("not ASCII"));
  for (const char* name : {"a..b", ".a", "a.."}) {
    EXPECT_EQ(FindNameFault(name), "it has an empty part between dots") << name;
  }
  EXPECT_EQ(FindNameFault(""), "it is empty");
  EXPECT_EQ(FindNameFault("b." + std::string(64, 'a')), "a part of it has more than 63 characters");
  EXPECT_EQ(FindNameFault(std::string(300, 'a')), "it has more than 255 characters");
}

TEST(SshWordsTest, DistinguishesFailures) {
  const struct {
    const char* words;
    FailureKind kind;
    const char* hint;
    bool transient;
  } cases[] = {
      {"ssh: Could not resolve hostname n: Name or service not known\r\n", FailureKind::kName,
       "address=", false},
      {"ssh: connect to host n port 22: Connection refused\r\n", FailureKind::kRefused,
       "port=", true},
      {"ssh: connect to host n port 22: Connection timed out\r\n", FailureKind::kTimeout, "ssh n",
       true},
      {"ssh: connect to host n port 22: No route to host\r\n", FailureKind::kUnreachable, "ssh n",
       false},
      {"No ED25519 host key is known for n and you have requested strict checking.\r\nHost key "
       "verification failed.\r\n",
       FailureKind::kHostKey, "hostkey=", false},
      {"@@@@\r\nOffending ED25519 key in /k:1\r\nHost key verification failed.\r\n",
       FailureKind::kHostKey, "ssh-keygen -R n", false},
      {"me@n: Permission denied (publickey).\r\n", FailureKind::kAuthentication, "ssh n", false},
      {"kex_exchange_identification: Connection closed by remote host\r\nConnection closed by "
       "n\r\n",
       FailureKind::kHandshake, "MaxStartups", true},
      {"command-line: line 0: Bad configuration option: knownhostscommand\r\n", FailureKind::kSsh,
       "~/.ssh/config", false},
      {"Bad owner or permissions on /home/me/.ssh/config\r\n", FailureKind::kSsh, "chmod", false},
      {"hostname contains invalid characters\r\n", FailureKind::kName, "spelt", false},
      {"something new\r\n", FailureKind::kSsh, "ssh n", false},
      {"", FailureKind::kSsh, "ssh n", false},
  };
  for (const auto& each : cases) {
    const HostFailure failure = ExplainSsh("n", each.words);
    EXPECT_EQ(failure.kind, each.kind) << each.words;
    EXPECT_THAT(failure.hint, HasSubstr(each.hint)) << each.words;
    EXPECT_EQ(failure.transient, each.transient) << each.words;
  }
  EXPECT_EQ(ExplainSsh("n", "first\r\nsome\x1b[2Jthing\r\n").message, "ssh n: some\\x1b[2Jthing");
}

// Whoever pastes a command of a hint runs ssh and nothing else.
TEST(SshWordsTest, HintsQuoteNamesThatAShellWouldRead) {
  const std::string hint = "'ssh HOST' must work; or ssh-keygen -R HOST";
  EXPECT_EQ(HintFor(hint, "me@h-0.net:22"),
            "'ssh me@h-0.net:22' must work; or ssh-keygen -R me@h-0.net:22");
  EXPECT_EQ(HintFor(hint, "a;id"), "ssh 'a;id' must work; or ssh-keygen -R 'a;id'");
  EXPECT_EQ(HintFor("try 'ssh -G HOST'", "$(id)'x"), "try ssh -G '$(id)'\\''x'");
  EXPECT_EQ(HintFor("'ssh HOST'", "-oProxyCommand=id"), "ssh -- -oProxyCommand=id");
  EXPECT_THAT(ExplainSsh("a${IFS}b", "what\r\n").hint, HasSubstr("ssh 'a${IFS}b' must work"));
}

TEST(SshWordsTest, AProxyThatFailedIsQuoted) {
  // What ssh says depends on how far its greeting came before the command ended.
  for (const char* end : {"kex_exchange_identification: Connection closed by remote host\r\n"
                          "Connection closed by UNKNOWN port 65535\r\n",
                          "kex_exchange_identification: read: Connection reset by peer\r\n"
                          "Connection reset by UNKNOWN port 65535\r\n",
                          "banner exchange: Connection to UNKNOWN port 65535: Broken pipe\r\n"}) {
    const HostFailure failure = ExplainSsh("n", std::string("first\nno way\n") + end);
    EXPECT_EQ(failure.kind, FailureKind::kHandshake) << end;
    EXPECT_TRUE(failure.transient) << end;
    EXPECT_THAT(failure.message, HasSubstr("; the proxy command printed: no way")) << end;
    EXPECT_THAT(failure.hint, HasSubstr("ProxyCommand or ProxyJump")) << end;
  }
  const HostFailure no_key = ExplainSsh(
      "n", "Unable to negotiate with UNKNOWN port 65535: no matching host key type found.\r\n");
  EXPECT_FALSE(no_key.transient);
  EXPECT_THAT(no_key.hint, HasSubstr("HostKeyAlgorithms"));
  EXPECT_THAT(
      ExplainSsh("n", "banner exchange: Connection to UNKNOWN port 65535: Broken pipe\r\n").message,
      ::testing::Not(HasSubstr("the proxy command printed")));
}

TEST(SshWordsTest, AWarningIsForTheUser) {
  EXPECT_EQ(WarningOf("motd\r\nWarning: Permanently added 'n' (ED25519) to the list.\r\n"),
            "ssh reports: Warning: Permanently added 'n' (ED25519) to the list.");
  EXPECT_EQ(WarningOf("motd\n"), "");
}

}  // namespace
}  // namespace ds::cli
