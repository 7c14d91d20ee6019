#include "cli/remote/host_key_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace ds::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const SshTokens kNames{.name = "node", .host = "10.0.0.2", .port = 2222, .user = "me"};

TEST(HostKeyPolicyTest, UsesOpenSshsDefaults) {
  ::setenv("HOME", "/home/me", 1);
  const auto policy = MakeHostKeyPolicy({}, kNames);
  ASSERT_TRUE(policy.ok());
  EXPECT_FALSE(policy->refuses_unknown_hosts);
  EXPECT_FALSE(policy->hashes_names);
  EXPECT_THAT(policy->users_files,
              ElementsAre("/home/me/.ssh/known_hosts", "/home/me/.ssh/known_hosts2"));
  EXPECT_THAT(policy->systems_files,
              ElementsAre("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"));
  EXPECT_EQ(policy->revoked_keys, "");
  EXPECT_EQ(policy->known_name, "10.0.0.2");
  EXPECT_EQ(policy->known_port, 2222);
}

TEST(HostKeyPolicyTest, TakesQuotedNamesAndTokens) {
  ::setenv("HOME", "/home/me", 1);
  SshSettings settings;
  settings.Add("StrictHostKeyChecking", "\"yes\"");
  settings.Add("StrictHostKeyChecking", "no");  // the first one counts
  settings.Add("HashKnownHosts", "yes");
  settings.Add("HostKeyAlias", "front");
  settings.Add("UserKnownHostsFile", "\"~/a b\" %d/%n-%h-%p-%r-%k-%%");
  settings.Add("GlobalKnownHostsFile", "none");
  settings.Add("RevokedHostKeys", "/etc/revoked");
  const auto policy = MakeHostKeyPolicy(settings, kNames);
  ASSERT_TRUE(policy.ok()) << policy.failure().message;
  EXPECT_TRUE(policy->refuses_unknown_hosts);
  EXPECT_TRUE(policy->hashes_names);
  EXPECT_EQ(policy->known_name, "front");
  EXPECT_EQ(policy->known_port, 22);
  EXPECT_THAT(policy->users_files,
              ElementsAre("/home/me/a b", "/home/me/node-10.0.0.2-2222-me-front-%"));
  EXPECT_THAT(policy->systems_files, IsEmpty());
  EXPECT_EQ(policy->revoked_keys, "/etc/revoked");
}

TEST(HostKeyPolicyTest, RefusesUnsupportedSettings) {
  for (const char* file : {"~/%C", "${HOME}/x", "~you/x", "relative", "/ends/with%"}) {
    for (const char* keyword : {"UserKnownHostsFile", "GlobalKnownHostsFile", "RevokedHostKeys"}) {
      SshSettings settings;
      settings.Add(keyword, file);
      const auto policy = MakeHostKeyPolicy(settings, kNames);
      ASSERT_FALSE(policy.ok()) << file;
      EXPECT_THAT(policy.failure().message, HasSubstr(keyword));
      EXPECT_EQ(policy.failure().kind, FailureKind::kHostKey);
      EXPECT_THAT(policy.failure().hint, HasSubstr("--launcher ssh-client"));
    }
  }
}

}  // namespace
}  // namespace ds::cli
