#include "daemon/logs/link_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::daemon {
namespace {

v1::RankReport Report(RankMessageKind kind, const std::string& body) {
  return MakeRankReport(3, {kind, body});
}

TEST(MakeRankReportTest, FillsInTheReportOfARank) {
  const v1::RankReport hello = Report(RankMessageKind::kHello, R"({"pid":7})");
  EXPECT_EQ(hello.rank(), 3U);
  EXPECT_EQ(hello.hello().pid(), 7U);
  const auto phase = Report(RankMessageKind::kPhase, R"({"name":"train","total_steps":9})").phase();
  EXPECT_EQ(phase.name(), "train");
  EXPECT_EQ(phase.total_steps(), 9U);
  const auto beacon =
      Report(RankMessageKind::kBeacon, R"({"step":4,"memory":{"resident_bytes":512}})").beacon();
  EXPECT_EQ(beacon.step(), 4U);
  EXPECT_EQ(beacon.resident_bytes(), 512U);
  EXPECT_EQ(Report(RankMessageKind::kNotice, R"({"text":"careful"})").notice().text(), "careful");
  const auto saved =
      Report(RankMessageKind::kCheckpoint, R"({"step":2,"path":"/c/step-2"})").checkpoint();
  EXPECT_EQ(saved.step(), 2U);
  EXPECT_EQ(saved.path(), "/c/step-2");
  const auto put = Report(RankMessageKind::kPut, R"({"key":"ranks/3","value":"at"})").put();
  EXPECT_EQ(put.key(), "ranks/3");
  EXPECT_EQ(put.value(), "at");
  EXPECT_EQ(Report(RankMessageKind::kEnd, R"({"summary":{"steps":9}})").end().steps(), 9U);
}

TEST(MakeRankReportTest, AStepKeepsItsTextToTheByte) {
  const std::string text = R"({"step":1, "loss":2.50,"tokens_per_second":100,"more":[1]})";
  const v1::RankStep step = Report(RankMessageKind::kStep, text).step();
  EXPECT_EQ(step.step(), 1U);
  EXPECT_EQ(step.loss(), 2.5);
  EXPECT_EQ(step.tokens_per_second(), 100);
  EXPECT_EQ(step.json(), text);
}

TEST(MakeRankReportTest, AnErrorCarriesTheFieldsOfAVerdict) {
  const v1::RankError error =
      Report(RankMessageKind::kError,
             R"({"code":-3,"message":"no \"data\"","hint":"add some","exit_code":2})")
          .error();
  EXPECT_EQ(error.code(), -3);
  EXPECT_EQ(error.message(), "no \"data\"");
  EXPECT_EQ(error.hint(), "add some");
  EXPECT_EQ(error.exit_code(), 2);
}

TEST(MakeRankReportTest, AnErrorNamesTheRanksThatWereNotThere) {
  const v1::RankError late =
      Report(RankMessageKind::kError, R"({"absence":"late","absent":[1,3]})").error();
  EXPECT_EQ(late.absence(), v1::RankError::LATE);
  EXPECT_THAT(late.absent(), ::testing::ElementsAre(1, 3));
  const v1::RankError other =
      Report(RankMessageKind::kError, R"({"absence":"gone","absent":["x",-1,2]})").error();
  EXPECT_EQ(other.absence(), v1::RankError::NONE);
  EXPECT_THAT(other.absent(), ::testing::ElementsAre(2));
}

TEST(MakeRankReportTest, OmitsInvalidFields) {
  for (const char* body : {"", "{", "[]", "3", "{}", R"({"step":"x"})", R"({"step":-1})",
                           R"({"step":1.5,"loss":"x","tokens_per_second":null})"}) {
    const v1::RankReport step = Report(RankMessageKind::kStep, body);
    ASSERT_TRUE(step.has_step()) << body;
    EXPECT_FALSE(step.step().has_step()) << body;
    EXPECT_FALSE(step.step().has_loss()) << body;
    EXPECT_FALSE(step.step().has_tokens_per_second()) << body;
    const v1::RankReport beacon = Report(RankMessageKind::kBeacon, body);
    ASSERT_TRUE(beacon.has_beacon()) << body;
    EXPECT_FALSE(beacon.beacon().has_step()) << body;
    EXPECT_EQ(Report(RankMessageKind::kError, body).error().message(), "") << body;
  }
  EXPECT_EQ(Report(RankMessageKind::kError, R"({"message":7})").error().message(), "");
  EXPECT_EQ(Report(RankMessageKind::kBeacon, R"({"memory":[1]})").beacon().resident_bytes(), 0U);
}

}  // namespace
}  // namespace ds::daemon
