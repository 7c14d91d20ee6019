#include "daemon/logs/event_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace ds::daemon {
namespace {

constexpr EventLogLimits kSmall{.max_bytes = 1000, .batch_bytes = 100, .ahead_bytes = 300};
const auto kNever = EventLog::Deadline::max();

v1::Event Output(std::size_t bytes) {
  v1::Event event;
  event.mutable_rank_output()->set_data(std::string(bytes, 'x'));
  return event;
}

std::vector<std::uint64_t> Sequences(const v1::EventBatch& batch) {
  std::vector<std::uint64_t> sequences;
  for (const v1::Event& event : batch.events()) sequences.push_back(event.sequence());
  return sequences;
}

using Numbers = std::vector<std::uint64_t>;

v1::Event Phase(std::uint32_t rank, const std::string& name) {
  v1::Event event;
  event.mutable_rank_report()->set_rank(rank);
  event.mutable_rank_report()->mutable_phase()->set_name(name);
  return event;
}

// A controller that takes over has no event of the first one.
TEST(EventLogTest, RepeatsTheStateOfTheRanksAndThenContinues) {
  EventLog log;
  v1::Event started, beacon;
  started.mutable_rank_started()->set_rank(7);
  beacon.mutable_rank_report()->mutable_beacon()->set_step(3);
  log.Append(started);
  log.Append(Output(1));
  log.Append(Phase(7, "load"));
  log.Append(Phase(7, "train"));
  log.Append(beacon);
  log.Append(Output(1));
  log.Acknowledge(5);
  EXPECT_EQ(log.Open(0).status().code(), StatusCode::kOutOfRange);
  auto watcher = log.Open(0, /*again=*/true);
  ASSERT_TRUE(watcher.ok());
  v1::EventBatch batch;
  EXPECT_EQ(log.Wait(&*watcher, kNever, &batch), EventLog::Next::kBatch);
  EXPECT_EQ(Sequences(batch), Numbers({1, 4}));
  EXPECT_EQ(batch.events(1).rank_report().phase().name(), "train");
  EXPECT_EQ(log.Wait(&*watcher, kNever, &batch), EventLog::Next::kBatch);
  EXPECT_EQ(Sequences(batch), Numbers({6}));
  auto later = log.Open(1, /*again=*/true);  // its connection broke after the first event
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(log.Wait(&*later, kNever, &batch), EventLog::Next::kBatch);
  EXPECT_EQ(Sequences(batch), Numbers({4}));
}

v1::Event Error(std::uint32_t rank, const std::string& message) {
  v1::Event event;
  event.mutable_rank_report()->set_rank(rank);
  event.mutable_rank_report()->mutable_error()->set_message(message);
  return event;
}

// Returns what a controller that takes over hears of these events when they are acknowledged.
std::vector<v1::Event> HearAgain(const std::vector<v1::Event>& events) {
  EventLog log;
  for (const v1::Event& event : events) log.Append(event);
  log.Acknowledge(events.size());
  log.Close();
  auto watcher = *log.Open(0, /*again=*/true);
  std::vector<v1::Event> heard;
  v1::EventBatch batch;
  while (log.Wait(&watcher, kNever, &batch) == EventLog::Next::kBatch) {
    heard.insert(heard.end(), batch.events().begin(), batch.events().end());
  }
  return heard;
}

TEST(EventLogTest, ARankThatReportsAgainAndAgainTakesNoMemory) {
  std::vector<v1::Event> events;
  for (int i = 0; i < 1000; ++i) {
    for (std::uint32_t rank : {3U, 4U}) {
      v1::Event hello, end, put;
      hello.mutable_rank_report()->mutable_hello()->set_pid(7);
      end.mutable_rank_report()->mutable_end()->set_steps(7);
      put.mutable_rank_report()->mutable_put()->set_key("key");
      put.mutable_rank_report()->mutable_put()->set_value(std::to_string(i));
      for (v1::Event event : {hello, end, put, Phase(rank, "load"), Error(rank, "no")}) {
        event.mutable_rank_report()->set_rank(rank);
        events.push_back(event);
      }
    }
  }
  const std::vector<v1::Event> heard = HearAgain(events);
  EXPECT_EQ(heard.size(), 2U * (3 + 2) + 1)
      << "per rank: hello, end, phase and two errors; the put";
  const auto put = std::find_if(heard.begin(), heard.end(), [](const v1::Event& event) {
    return event.rank_report().has_put();
  });
  ASSERT_NE(put, heard.end());
  EXPECT_EQ(put->rank_report().put().value(), "0") << "the first value of a key counts";
}

TEST(EventLogTest, OfManyErrorsTheFirstAndTheLastAreKeptAndTheOthersCounted) {
  v1::Event late = Error(1, "rank 2 is late");
  late.mutable_rank_report()->mutable_error()->set_absence(v1::RankError::LATE);
  late.mutable_rank_report()->mutable_error()->add_absent(2);
  std::vector<v1::Event> events = {Error(1, "first")};
  for (int i = 0; i < 5; ++i) events.push_back(Error(1, "more"));
  for (int i = 0; i < 3; ++i) events.push_back(late);
  events.push_back(Error(1, "last"));
  const std::vector<v1::Event> heard = HearAgain(events);
  std::vector<std::string> told;
  for (const v1::Event& event : heard) {
    const v1::RankError& error = event.rank_report().error();
    told.push_back(error.message() + " " + std::to_string(error.omitted()));
  }
  EXPECT_EQ(told, (std::vector<std::string>{"first 0", "rank 2 is late 0", "last 7"}));
}

TEST(EventLogTest, NoEndOfARankIsOmitted) {
  std::vector<v1::Event> events;
  for (std::uint32_t rank = 0; rank < 1000; ++rank) {
    v1::Event started, exited;
    started.mutable_rank_started()->set_rank(rank);
    exited.mutable_rank_exited()->set_rank(rank);
    events.insert(events.end(), {started, exited});
  }
  EXPECT_EQ(HearAgain(events).size(), 2000U);
}

TEST(EventLogTest, NumbersEventsAndEndsAfterTheLast) {
  EventLog log;
  for (int i = 0; i < 3; ++i) log.Append(Output(1));
  log.Close();
  auto watcher = log.Open(0);
  ASSERT_TRUE(watcher.ok());
  v1::EventBatch batch;
  EXPECT_EQ(log.Wait(&*watcher, kNever, &batch), EventLog::Next::kBatch);
  EXPECT_EQ(Sequences(batch), Numbers({1, 2, 3}));
  EXPECT_GT(batch.events(0).unix_nanos(), 0);
  EXPECT_EQ(log.Wait(&*watcher, kNever, &batch), EventLog::Next::kEnd);
}

TEST(EventLogTest, ABatchEndsWithTheEventThatFillsIt) {
  EventLog log(kSmall);
  for (int i = 0; i < 3; ++i) log.Append(Output(60));
  auto watcher = log.Open(0);
  v1::EventBatch batch;
  EXPECT_EQ(log.Wait(&*watcher, kNever, &batch), EventLog::Next::kBatch);
  EXPECT_EQ(Sequences(batch), Numbers({1, 2}));
  EXPECT_EQ(log.Wait(&*watcher, kNever, &batch), EventLog::Next::kBatch);
  EXPECT_EQ(Sequences(batch), Numbers({3}));
}

TEST(EventLogTest, SendsNoFurtherAheadThanAgreed) {
  EventLog log(kSmall);
  for (int i = 0; i < 10; ++i) log.Append(Output(100));
  auto watcher = log.Open(0);
  v1::EventBatch batch;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(log.Wait(&*watcher, kNever, &batch), EventLog::Next::kBatch);
    EXPECT_EQ(Sequences(batch), Numbers({i}));
  }
  EXPECT_EQ(log.Wait(&*watcher, kNever, &batch), EventLog::Next::kAcknowledge);
  log.Acknowledge(1);
  EXPECT_EQ(log.Wait(&*watcher, kNever, &batch), EventLog::Next::kBatch);
  EXPECT_EQ(Sequences(batch), Numbers({4}));
}

TEST(EventLogTest, ResendsUnacknowledgedEvents) {
  EventLog log;
  for (int i = 0; i < 4; ++i) log.Append(Output(1));
  v1::EventBatch batch;
  auto first = log.Open(0);
  log.Wait(&*first, kNever, &batch);
  log.Acknowledge(2);
  auto second = log.Open(2);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(log.Wait(&*second, kNever, &batch), EventLog::Next::kBatch);
  EXPECT_EQ(Sequences(batch), Numbers({3, 4}));
}

TEST(EventLogTest, RefusesToContinueWhereItCannot) {
  EventLog log;
  for (int i = 0; i < 4; ++i) log.Append(Output(1));
  log.Acknowledge(2);
  EXPECT_EQ(log.Open(1).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(log.Open(5).status().code(), StatusCode::kOutOfRange);
  EXPECT_TRUE(log.Open(2).ok());
  EXPECT_TRUE(log.Open(4).ok());
}

TEST(EventLogTest, ASecondWatcherEndsTheFirst) {
  EventLog log;
  auto first = log.Open(0);
  EventLog::Next next = EventLog::Next::kBatch;
  std::thread waiting([&] {
    v1::EventBatch batch;
    next = log.Wait(&*first, kNever, &batch);
  });
  ASSERT_TRUE(log.Open(0).ok());
  waiting.join();
  EXPECT_EQ(next, EventLog::Next::kSuperseded);
}

TEST(EventLogTest, TheDeadlineEndsAWait) {
  EventLog log;
  auto watcher = log.Open(0);
  v1::EventBatch batch;
  EXPECT_EQ(log.Wait(&*watcher, std::chrono::steady_clock::now(), &batch),
            EventLog::Next::kDeadline);
}

TEST(EventLogTest, ReportsFreedSpace) {
  int room = 0;
  EventLog log(kSmall, [&room] { ++room; });
  for (int i = 0; i < 4; ++i) log.Append(Output(200));
  EXPECT_FALSE(log.full());
  for (int i = 0; i < 2; ++i) log.Append(Output(200));
  EXPECT_TRUE(log.full());
  log.Acknowledge(1);
  EXPECT_TRUE(log.full());
  EXPECT_EQ(room, 0);
  log.Acknowledge(2);
  EXPECT_FALSE(log.full());
  log.Acknowledge(3);
  EXPECT_EQ(room, 1);
}

TEST(EventLogTest, AnAbandonedLogIsNeverFull) {
  int room = 0;
  EventLog log(kSmall, [&room] { ++room; });
  log.Append(Output(2000));
  log.Abandon();
  EXPECT_EQ(room, 1);
  log.Append(Output(2000));
  EXPECT_FALSE(log.full());
}

}  // namespace
}  // namespace ds::daemon
