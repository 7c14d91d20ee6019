#include "runtime/rank/rank_reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

namespace ds::rank {
namespace {

class RankReporterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    daemon_.Reset(ends[0]);
    reporter_ = std::make_unique<RankReporter>(std::make_unique<RankLink>(UniqueFd(ends[1])), 3);
  }

  // The one message that is on its way.
  RankMessage Received() {
    char buffer[4096];
    const ssize_t got = ::recv(daemon_.get(), buffer, sizeof(buffer), 0);
    RankMessageReader reader;
    reader.Feed(std::string_view(buffer, static_cast<std::size_t>(got)));
    return (*reader.Next()).value();
  }

  UniqueFd daemon_;
  std::unique_ptr<RankReporter> reporter_;
};

TEST_F(RankReporterTest, ErrorCarriesTheFieldsOfAVerdict) {
  reporter_->ReportError(
      {.status = InvalidArgumentError("no config.json"), .exit_code = 2, .hint = "look"});
  const RankMessage message = Received();
  EXPECT_EQ(message.kind, RankMessageKind::kError);
  const auto body = nlohmann::json::parse(message.body);
  EXPECT_EQ(body["message"], "no config.json");
  EXPECT_EQ(body["exit_code"], 2);
  EXPECT_EQ(body["hint"], "look");
}

TEST_F(RankReporterTest, ErrorNamesTheRanksThatWereNotThere) {
  reporter_->ReportError({.status = UnavailableError("rank 1 did not come"),
                          .absence = {.kind = comm::Absence::Kind::kLate, .ranks = {1, 3}}});
  const auto body = nlohmann::json::parse(Received().body);
  EXPECT_EQ(body["absence"], "late");
  EXPECT_EQ(body["absent"], nlohmann::json({1, 3}));
}

TEST_F(RankReporterTest, BytesThatAreNoTextStillArrive) {
  reporter_->ReportNotice("path \xff\xfe");
  EXPECT_TRUE(nlohmann::json::accept(Received().body));
}

TEST_F(RankReporterTest, WarnsOnceOfMessagesThatAreTooLong) {
  const std::string text(kMaxLineBytes, 'x');
  ::testing::internal::CaptureStdout();  // where logs go without InitLog
  reporter_->ReportNotice(text);
  reporter_->ReportNotice(text);
  reporter_->ReportNotice("short");
  const std::string log = ::testing::internal::GetCapturedStdout();
  const std::string warning = "is longer than 65536; such messages of this rank are dropped";
  EXPECT_THAT(log, ::testing::HasSubstr("rank 3: rank link: a message of "));
  EXPECT_THAT(log, ::testing::HasSubstr(warning));
  EXPECT_EQ(log.find(warning), log.rfind(warning));
  EXPECT_EQ(nlohmann::json::parse(Received().body)["text"], "short");
}

TEST_F(RankReporterTest, AVanishedDaemonIsNoError) {
  daemon_.Reset();
  reporter_->ReportPhase("train");  // SIGPIPE would end this test
}

}  // namespace
}  // namespace ds::rank
