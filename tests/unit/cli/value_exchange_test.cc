#include "cli/job/value_exchange.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/rank_link.h"

namespace ds::cli {
namespace {

using std::chrono::milliseconds;
using Time = ValueExchange::Time;

v1::SharedValue Value(const std::string& key, const std::string& value) {
  v1::SharedValue shared;
  shared.set_key(key);
  shared.set_value(value);
  return shared;
}

std::vector<std::string> KeysOf(const ValueExchange::Parcel& parcel) {
  std::vector<std::string> keys;
  for (const v1::SharedValue& each : parcel.values) keys.push_back(each.key());
  return keys;
}

using Keys = std::vector<std::string>;

TEST(ValueExchangeTest, EveryHostGetsTheKeyAndAllValuesOfTheRanks) {
  ValueExchange exchange("secret");
  exchange.Add(Value("ranks/0", "here"));
  EXPECT_TRUE(exchange.TakeDue(Time(0)).empty()) << "nobody is there";
  exchange.Connect({0, 1});
  const auto due = exchange.TakeDue(Time(0));
  ASSERT_EQ(due.size(), 2U);
  for (const int host : {0, 1}) {
    EXPECT_EQ(due[host].host, host);
    EXPECT_EQ(KeysOf(due[host]), (Keys{kRankKeyName, "ranks/0"}));
    EXPECT_EQ(due[host].values[0].value(), "secret");
  }
  exchange.Add(Value("ranks/1", "there"));
  EXPECT_TRUE(exchange.TakeDue(Time(0)).empty()) << "one parcel at a time";
  EXPECT_TRUE(exchange.OnAnswer(1, OkStatus(), Time(0)));
  const auto more = exchange.TakeDue(Time(0));
  ASSERT_EQ(more.size(), 1U);
  EXPECT_EQ(more[0].host, 1);
  EXPECT_EQ(KeysOf(more[0]), Keys{"ranks/1"});
}

TEST(ValueExchangeTest, ResendsFailedRequests) {
  ValueExchange exchange("secret");
  exchange.Connect({1});
  EXPECT_FALSE(exchange.next().has_value());
  EXPECT_EQ(exchange.TakeDue(Time(0)).size(), 1U);
  EXPECT_TRUE(exchange.OnAnswer(1, UnavailableError("connection reset"), milliseconds(10)));
  exchange.Add(Value("ranks/0", "here"));
  EXPECT_TRUE(exchange.TakeDue(milliseconds(10)).empty());
  ASSERT_TRUE(exchange.next().has_value());
  const auto again = exchange.TakeDue(*exchange.next());
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(KeysOf(again[0]), (Keys{kRankKeyName, "ranks/0"}));
}

TEST(ValueExchangeTest, AHostThatRefusesGetsNoMore) {
  ValueExchange exchange("secret");
  exchange.Connect({0, 1});
  EXPECT_EQ(exchange.TakeDue(Time(0)).size(), 2U);
  EXPECT_FALSE(exchange.OnAnswer(1, FailedPreconditionError("too many values"), Time(0)));
  EXPECT_TRUE(exchange.OnAnswer(0, OkStatus(), Time(0)));
  exchange.Add(Value("ranks/0", "here"));
  const auto due = exchange.TakeDue(Time(0));
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(due[0].host, 0);
}

TEST(ValueExchangeTest, AHostThatIsGivenUpRefusesNothing) {
  ValueExchange exchange("secret");
  exchange.Connect({0, 1});
  EXPECT_EQ(exchange.TakeDue(Time(0)).size(), 2U);
  EXPECT_TRUE(exchange.OnAnswer(0, UnavailableError("connection reset"), Time(0)));
  exchange.Disconnect(0);
  exchange.Disconnect(1);
  EXPECT_TRUE(exchange.OnAnswer(1, CancelledError("CANCELLED"), Time(0)))
      << "its calls are cancelled";
  EXPECT_FALSE(exchange.next().has_value());
  exchange.Add(Value("ranks/0", "here"));
  EXPECT_TRUE(exchange.TakeDue(milliseconds(1000)).empty());
}

TEST(ValueExchangeTest, NoTwoGenerationsHaveOneKey) {
  const std::string key = DrawRankKey();
  EXPECT_EQ(key.size(), 64U);
  EXPECT_EQ(key.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(key, DrawRankKey());
}

}  // namespace
}  // namespace ds::cli
