#include "cli/job/value_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "cli/job/bounded_queue.h"
#include "runtime/base/rank_link.h"

namespace ds::cli {
namespace {

v1::SharedValue Value(const std::string& key, const std::string& value) {
  v1::SharedValue shared;
  shared.set_key(key);
  shared.set_value(value);
  return shared;
}

// Two hosts that keep what they are sent; the second one fails as often as it is told to.
class Hosts {
 public:
  ValueExchange::Send Sender() {
    return [this](int node_rank, const std::vector<v1::SharedValue>& values) {
      if (node_rank == 1 && failures-- > 0) return failure;
      for (const v1::SharedValue& each : values) came.at(node_rank).Put({each.key(), each.value()});
      return OkStatus();
    };
  }
  // The next value that the host got.
  std::pair<std::string, std::string> Next(int node_rank) {
    return came.at(node_rank).Take(std::chrono::seconds(60)).value();
  }

  ValueExchange::Tell Teller() {
    return [this](int node_rank, const Status& why) { told.Put({node_rank, why}); };
  }

  int failures = 0;
  Status failure = UnavailableError("connection reset");
  BoundedQueue<std::pair<int, Status>> told{100};
  std::map<int, BoundedQueue<std::pair<std::string, std::string>>> came = [] {
    std::map<int, BoundedQueue<std::pair<std::string, std::string>>> queues;
    for (const int node_rank : {0, 1}) queues.try_emplace(node_rank, 100);
    return queues;
  }();
};

TEST(ValueExchangeTest, EveryHostGetsTheKeyOfTheRanksAndWhatAllOfThemPut) {
  Hosts hosts;
  ValueExchange exchange({0, 1}, hosts.Sender(), hosts.Teller());
  exchange.Add(Value("ranks/0", "here"));
  exchange.Add(Value("ranks/1", "there"));
  std::vector<std::string> keys;
  for (const int node_rank : {0, 1}) {
    const auto [name, key] = hosts.Next(node_rank);
    EXPECT_EQ(name, kRankKeyName);
    EXPECT_EQ(key.size(), 64u);
    EXPECT_EQ(key.find_first_not_of("0123456789abcdef"), std::string::npos);
    keys.push_back(key);
    EXPECT_EQ(hosts.Next(node_rank), std::pair(std::string("ranks/0"), std::string("here")));
    EXPECT_EQ(hosts.Next(node_rank), std::pair(std::string("ranks/1"), std::string("there")));
  }
  EXPECT_EQ(keys[0], keys[1]);
}

TEST(ValueExchangeTest, WhatDoesNotGetThroughIsSentAgain) {
  Hosts hosts;
  hosts.failures = 2;
  ValueExchange exchange({1}, hosts.Sender(), hosts.Teller());
  exchange.Add(Value("ranks/0", "here"));
  EXPECT_EQ(hosts.Next(1).first, kRankKeyName);
  EXPECT_EQ(hosts.Next(1).first, "ranks/0");
}

TEST(ValueExchangeTest, AHostThatRefusesIsTold) {
  Hosts hosts;
  hosts.failures = 1;
  hosts.failure = ResourceExhaustedError("too many values");
  const ValueExchange exchange({0, 1}, hosts.Sender(), hosts.Teller());
  const auto told = hosts.told.Take(std::chrono::seconds(60));
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->first, 1);
  EXPECT_EQ(told->second, hosts.failure);
}

TEST(ValueExchangeTest, AHostWhoseGenerationHasEndedIsNoNews) {
  Hosts hosts;
  std::promise<void> asked;
  {
    const auto refuse = [&](int, const std::vector<v1::SharedValue>&) {
      asked.set_value();
      return NotFoundError("generation 0 is not the current one");
    };
    const ValueExchange exchange({1}, refuse, hosts.Teller());
    asked.get_future().wait();
  }
  EXPECT_FALSE(hosts.told.Take(std::chrono::seconds(0)).has_value());
}

TEST(ValueExchangeTest, NoTwoGenerationsHaveOneKey) {
  Hosts hosts;
  std::vector<std::string> keys;
  for (int generation = 0; generation < 2; ++generation) {
    const ValueExchange exchange({0}, hosts.Sender(), hosts.Teller());
    keys.push_back(hosts.Next(0).second);
  }
  EXPECT_NE(keys[0], keys[1]);
}

}  // namespace
}  // namespace ds::cli
