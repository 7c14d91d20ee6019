// What a daemon for another host is started with and does not take: it names it and does not begin.

#include <gtest/gtest.h>

#include <string>

#include "tests/procs/network_daemon.h"

namespace ds::procs {
namespace {

class RefusedStart : public ::testing::Test {
 protected:
  static ListenAnswer StartWith(const std::string& line, const std::string& address = "127.0.0.1") {
    return Listen({.address = address}, line);
  }
  static v1::Credentials Good() { return cli::JobAuthority::Create(kJob)->IssueDaemon(0).value(); }
};

TEST_F(RefusedStart, ExpiredCertificatesAndWrongClocksAreNamed) {
  const auto past = cli::JobAuthority::Create(kJob, {.not_before = 0, .not_after = 1'000'000'000});
  const ListenAnswer late = StartWith(ListenLine(past->IssueDaemon(0).value(), 30));
  EXPECT_EQ(late.status, 1);
  EXPECT_NE(late.error.find("the clock of this host shows"), std::string::npos) << late.error;
  EXPECT_NE(late.error.find("to Sep  9 01:46:40 2001 GMT"), std::string::npos) << late.error;
  const auto future =
      cli::JobAuthority::Create(kJob, {.not_before = 4'000'000'000, .not_after = 5'000'000'000});
  const ListenAnswer early = StartWith(ListenLine(future->IssueDaemon(0).value(), 30));
  EXPECT_NE(early.error.find("valid from Oct  2 07:06:40 2096"), std::string::npos) << early.error;
}

TEST_F(RefusedStart, CredentialsThatDoNotFitAreNamedAndNotShown) {
  v1::Credentials mixed = Good();
  mixed.set_private_key(Good().private_key());
  EXPECT_EQ(StartWith(ListenLine(mixed, 30)).error, "private_key: not the key of the certificate");
  v1::Credentials foreign = Good();
  foreign.set_ca_certificate(Good().ca_certificate());
  EXPECT_NE(StartWith(ListenLine(foreign, 30)).error.find("certificate: "), std::string::npos);
  const auto controller = cli::JobAuthority::Create(kJob)->IssueController();
  EXPECT_NE(StartWith(ListenLine(*controller, 30)).error.find("purpose"), std::string::npos);
  v1::Credentials none = Good();
  none.set_private_key("secret");
  EXPECT_EQ(StartWith(ListenLine(none, 30)).error, "private_key: not a PEM private key");
}

TEST_F(RefusedStart, NamesInvalidRequests) {
  EXPECT_EQ(StartWith("").error, "standard input ended before its line did");
  EXPECT_EQ(StartWith("hello\n").error, "standard input: not the line of a ListenRequest");
  EXPECT_EQ(StartWith("\n").error, "ca_certificate: not a PEM certificate");
  EXPECT_EQ(StartWith(ListenLine(Good(), -1)).error,
            "lease_seconds must be between 0.05 and 86400");
  EXPECT_EQ(StartWith(std::string(100'000, 'x') + "\n").error,
            "standard input: the line is too long");
}

TEST_F(RefusedStart, AnAddressThatIsNotOneIsNamed) {
  const std::string line = ListenLine(Good(), 30);
  EXPECT_NE(StartWith(line, "localhost").error.find("is not an IP address"), std::string::npos);
  EXPECT_NE(StartWith(line, "0.0.0.0").error.find("not on all"), std::string::npos);
  EXPECT_NE(StartWith(line, "::").error.find("not on all"), std::string::npos);
  EXPECT_NE(StartWith(line, "192.0.2.1").error.find("cannot listen on 192.0.2.1: "),
            std::string::npos);
}

}  // namespace
}  // namespace ds::procs
