#include "cli/remote/job_authority.h"

#include <gtest/gtest.h>

#include "daemon/network/check_credentials.h"

namespace ds::cli {
namespace {

constexpr std::int64_t kYear = 31'556'952;
constexpr std::int64_t kNow = 1'795'000'000;  // November 2026

Status CheckedAt(std::int64_t unix_seconds, const v1::Credentials& credentials) {
  return daemon::CheckCredentials(credentials, unix_seconds);
}

TEST(JobAuthorityTest, AWrongClockOnAHostDoesNotBreakAJob) {
  const auto authority = JobAuthority::Create("job", DatesOfCertificates(kNow));
  ASSERT_TRUE(authority.ok()) << authority.status().message();
  const v1::Credentials credentials = authority->IssueDaemon(0).value();
  const std::int64_t never_set = 60;  // a minute after 1970 began
  for (const std::int64_t clock : {never_set, kNow - 26 * kYear, kNow, kNow + 9 * kYear}) {
    const Status status = CheckedAt(clock, credentials);
    EXPECT_TRUE(status.ok()) << clock << ": " << status.message();
  }
  EXPECT_EQ(CheckedAt(kNow + 11 * kYear, credentials).code(), StatusCode::kFailedPrecondition);
}

TEST(JobAuthorityTest, AControllerWithAnUnsetClockMakesValidCertificates) {
  const auto authority = JobAuthority::Create("job", DatesOfCertificates(60));
  const Status status = CheckedAt(kNow, authority->IssueDaemon(0).value());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(JobAuthorityTest, EveryAuthorityAndEveryEndHasItsOwnKey) {
  const auto one = JobAuthority::Create("job");
  const auto other = JobAuthority::Create("job");
  const v1::Credentials first = one->IssueDaemon(0).value();
  const v1::Credentials second = one->IssueDaemon(1).value();
  EXPECT_EQ(first.ca_certificate(), second.ca_certificate());
  EXPECT_NE(first.private_key(), second.private_key());
  EXPECT_NE(first.certificate(), second.certificate());
  EXPECT_NE(first.ca_certificate(), other->IssueDaemon(0)->ca_certificate());
}

TEST(JobAuthorityTest, AJobIdThatCouldMeanSomethingElseIsRefused) {
  for (const char* id : {"", "a,b", "a b", "a:b", "a/b", "a\nb", "*"}) {
    EXPECT_EQ(JobAuthority::Create(id).status().code(), StatusCode::kInvalidArgument) << id;
  }
  EXPECT_EQ(JobAuthority::Create(std::string(200, 'x')).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(JobAuthority::Create("train.py-20261121-120000-0a1b").ok());
}

}  // namespace
}  // namespace ds::cli
