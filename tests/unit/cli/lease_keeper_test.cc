#include "cli/host/lease_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "cli/host/lease_table.h"
#include "runtime/base/clock.h"
#include "runtime/process/boot_time.h"
#include "tests/support/bounded_queue.h"

namespace ds::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::IsEmpty;

constexpr milliseconds kLease{300};

// A daemon whose answers to renewals are told.
class LeaseDaemon : public HostDaemon {
 public:
  void Begin(const v1::PrepareRequest&, AnswerCallback<v1::PrepareResponse> done) override {
    done(kUnused);
  }
  void Begin(const v1::LaunchRequest&, AnswerCallback<v1::LaunchResponse> done) override {
    done(kUnused);
  }
  void Begin(const v1::StopRequest&, AnswerCallback<v1::StopResponse> done) override {
    done(kUnused);
  }
  void Begin(const v1::SignalRequest&, AnswerCallback<v1::SignalResponse> done) override {
    done(kUnused);
  }
  void Begin(const v1::ShareRequest&, AnswerCallback<v1::ShareResponse> done) override {
    done(kUnused);
  }
  void Begin(const v1::InspectRequest&, AnswerCallback<v1::InspectResponse> done) override {
    done(kUnused);
  }
  StatusOr<v1::InputResponse> Input(const v1::InputRequest&) override { return kUnused; }
  void BeginWatch(const WatchedGeneration&, WatchCallbacks callbacks) override {
    callbacks.on_end(kUnused);
  }
  bool leased() const override { return has_lease; }
  void Renew(const RenewCall& call, DoneCallback done) override {
    if (on_renew) on_renew();
    const std::lock_guard lock(mutex_);
    ++(call.release ? releases_ : renewals_);
    changed_.notify_all();
    if (answer) {
      done(OkStatus());
    } else {
      done(UnavailableError("connection reset"));
    }
  }
  std::chrono::nanoseconds LastEvent() const override {
    return events ? std::chrono::steady_clock::now().time_since_epoch()
                  : std::chrono::nanoseconds(0);
  }
  ProbeResult Probe(milliseconds) const override {
    if (on_probe) on_probe();
    return {Reachability::kRefused, "nobody"};
  }

  bool AwaitRenewals(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(60), [&] { return renewals_ >= count; });
  }
  int renewals() {
    const std::lock_guard lock(mutex_);
    return renewals_;
  }
  int releases() {
    const std::lock_guard lock(mutex_);
    return releases_;
  }

  std::function<void()> on_renew;
  std::function<void()> on_probe;
  bool has_lease = true;
  std::atomic<bool> answer = true;
  std::atomic<bool> events = false;

 private:
  const Status kUnused = UnimplementedError("not used");
  std::mutex mutex_;
  std::condition_variable changed_;
  int renewals_ = 0;
  int releases_ = 0;
};

// Changes as they come; takes them until one is of `grade`.
class Changes {
 public:
  LeaseKeeper::OnChange Listener() {
    return [this](const HostChange& change) { queue_.Put(change); };
  }
  std::vector<HostGrade> GradesUntil(HostGrade grade) {
    std::vector<HostGrade> grades;
    do {
      const auto change = queue_.Take(seconds(60));
      if (!change.has_value()) break;
      last = *change;
      grades.push_back(change->grade);
    } while (grades.back() != grade);
    return grades;
  }
  HostChange last;

 private:
  ds::testing::BoundedQueue<HostChange> queue_{64};
};

TEST(LeaseKeeperTest, RenewsAllHostsUntilItReleasesThem) {
  LeaseDaemon first;
  LeaseDaemon second;
  LeaseKeeper keeper(kLease);
  keeper.Add(0, &first);
  ASSERT_TRUE(first.AwaitRenewals(3)) << "while others are still being reached";
  keeper.Add(1, &second);
  ASSERT_TRUE(second.AwaitRenewals(3));
  keeper.Release();
  const int renewals = first.renewals();
  keeper.Release();
  EXPECT_EQ(first.releases(), 1);
  EXPECT_EQ(second.releases(), 1);
  EXPECT_EQ(first.renewals(), renewals);
}

TEST(LeaseKeeperTest, AHostWithoutALeaseIsAskedAndGradedLikeOthers) {
  LeaseDaemon local;
  local.has_lease = false;
  Changes changes;
  {
    LeaseKeeper keeper(kLease);
    keeper.Listen(changes.Listener());
    keeper.Add(0, &local);
    ASSERT_TRUE(local.AwaitRenewals(3));
    local.answer = false;
    changes.GradesUntil(HostGrade::kLost);
    EXPECT_TRUE(changes.last.is_of_this_machine);
  }
  EXPECT_EQ(local.releases(), 0) << "it ends with its pipe";
}

// This process stands still where it works, as on a machine without memory.
TEST(LeaseKeeperTest, AStandstillBetweenTwoWaitsIsNoSilenceOfADaemonHere) {
  LeaseDaemon local;
  local.has_lease = false;
  LeaseDaemon other;
  other.has_lease = false;
  std::atomic<std::chrono::nanoseconds> stood{};
  other.on_renew = [&] { stood = 3 * kLease; };
  const auto read_clocks = [&] {
    return OwnPauses::Clocks{.boot = BootTime() + stood.load(),
                             .awake = Clock::System().Now() + stood.load()};
  };
  Changes changes;
  LeaseKeeper keeper(kLease, read_clocks);
  keeper.Listen(changes.Listener());
  keeper.Add(0, &local);
  ASSERT_TRUE(local.AwaitRenewals(3));
  keeper.Add(1, &other);
  ASSERT_TRUE(other.AwaitRenewals(10)) << "they are renewed as long as they are not lost";
  ASSERT_TRUE(local.AwaitRenewals(local.renewals() + 3));
}

TEST(LeaseTableTest, SleepOfTheMachineIsNotSilenceOfItsDaemon) {
  LeaseTable table(seconds(6));
  table.Add(0, seconds(100), /*is_of_this_machine=*/true);
  table.BeginWait({.boot = seconds(100), .awake = seconds(100)});
  table.EndWait({.boot = seconds(3700), .awake = seconds(101)});
  EXPECT_THAT(table.TakeChanges(seconds(101), 0), IsEmpty());
  const std::vector<HostChange> changes = table.TakeChanges(seconds(108), 0);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].grade, HostGrade::kLost);
}

TEST(LeaseTableTest, ADaemonHereThatAnsweredAtTheEndOfAPauseMayNotBeSilentForLongerThanOthers) {
  LeaseTable table(seconds(6));
  table.Add(0, seconds(100), /*is_of_this_machine=*/true);
  table.BeginWait({.boot = seconds(100), .awake = seconds(100)});
  table.OnRenewed(0, OkStatus(), seconds(112));
  table.EndWait({.boot = seconds(112), .awake = seconds(112)});
  const std::vector<HostChange> changes = table.TakeChanges(seconds(118), 0);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].grade, HostGrade::kLost);
}

TEST(LeaseTableTest, APauseOfSeveralLeasesDoesNotLoseADaemonHere) {
  LeaseTable table(seconds(6));
  table.Add(0, seconds(100), /*is_of_this_machine=*/true);
  table.BeginWait({.boot = seconds(100), .awake = seconds(100)});
  table.EndWait({.boot = seconds(120), .awake = seconds(120)});
  EXPECT_THAT(table.TakeChanges(seconds(120), 0), IsEmpty());
}

TEST(LeaseKeeperTest, ASilentHostIsLostStepByStepAndForGood) {
  LeaseDaemon host;
  host.answer = false;
  Changes changes;
  LeaseKeeper keeper(kLease);
  keeper.Listen(changes.Listener());
  keeper.Add(7, &host);
  const std::vector<HostGrade> grades = changes.GradesUntil(HostGrade::kLost);
  ASSERT_FALSE(grades.empty());
  EXPECT_EQ(grades.back(), HostGrade::kLost);
  EXPECT_TRUE(std::is_sorted(grades.begin(), grades.end()));
  EXPECT_EQ(changes.last.host, 7);
  EXPECT_GE(changes.last.silence, kLease);
  EXPECT_GT(changes.last.last_sign_unix_nanos, 0);
  EXPECT_NE(changes.last.evidence.find("connection reset"), std::string::npos);
  EXPECT_TRUE(changes.last.awaits_probe());
  changes.GradesUntil(HostGrade::kLost);
  EXPECT_EQ(changes.last.before, HostGrade::kLost);
  EXPECT_EQ(changes.last.probe.value_or(ProbeResult()).detail, "nobody");
  // A renewal now would keep ranks alive that the job has written off.
  const int renewals = host.renewals();
  host.answer = true;
  LeaseDaemon other;
  keeper.Add(8, &other);
  ASSERT_TRUE(other.AwaitRenewals(4));
  EXPECT_EQ(host.renewals(), renewals);
  keeper.Release();
  EXPECT_EQ(host.releases(), 0);
}

TEST(LeaseKeeperTest, AProbeThatBlocksDelaysNeitherRenewalsNorTheReportOfTheLoss) {
  LeaseDaemon lost;
  lost.answer = false;
  LeaseDaemon other;
  std::promise<void> probed;
  const std::shared_future<void> end_probe = probed.get_future().share();
  lost.on_probe = [end_probe] { end_probe.wait(); };
  Changes changes;
  LeaseKeeper keeper(kLease);
  keeper.Listen(changes.Listener());
  keeper.Add(0, &lost);
  keeper.Add(1, &other);
  changes.GradesUntil(HostGrade::kLost);
  EXPECT_EQ(changes.last.host, 0);
  EXPECT_FALSE(changes.last.probe.has_value());
  EXPECT_TRUE(other.AwaitRenewals(other.renewals() + 12)) << "two leases";
  probed.set_value();
  changes.GradesUntil(HostGrade::kLost);
  EXPECT_TRUE(changes.last.probe.has_value());
}

TEST(LeaseKeeperTest, NoReportOfAProbeFollowsTheRelease) {
  LeaseDaemon lost;
  lost.answer = false;
  std::promise<void> began;
  std::promise<void> probed;
  const std::shared_future<void> end_probe = probed.get_future().share();
  lost.on_probe = [&began, end_probe] {
    began.set_value();
    end_probe.wait();
  };
  std::atomic<int> reports = 0;
  LeaseKeeper keeper(kLease);
  keeper.Listen([&](const HostChange& change) { reports += change.probe.has_value(); });
  keeper.Add(0, &lost);
  began.get_future().wait();
  std::jthread release([&keeper] { keeper.Release(); });
  probed.set_value();
  release.join();
  EXPECT_EQ(reports, 1);
}

TEST(LeaseKeeperTest, EventsKeepAHostAliveWithoutAnswers) {
  LeaseDaemon busy;
  busy.answer = false;
  busy.events = true;
  Changes changes;
  LeaseKeeper keeper(kLease);
  keeper.Listen(changes.Listener());
  keeper.Add(0, &busy);
  ASSERT_TRUE(busy.AwaitRenewals(12)) << "two leases";
  busy.events = false;
  EXPECT_NE(changes.GradesUntil(HostGrade::kLost).front(), HostGrade::kAlive);
}

TEST(LeaseKeeperTest, NotifiesLateListeners) {
  LeaseDaemon host;
  host.answer = false;
  Changes changes;
  LeaseKeeper keeper(kLease);
  keeper.Add(0, &host);
  ASSERT_TRUE(host.AwaitRenewals(3));
  keeper.Listen(changes.Listener());
  EXPECT_EQ(changes.GradesUntil(HostGrade::kLost).back(), HostGrade::kLost);
}

TEST(LeaseKeeperTest, AHostThatAnswersAgainIsAliveAgain) {
  LeaseDaemon host;
  host.answer = false;
  Changes changes;
  LeaseKeeper keeper(seconds(3));
  keeper.Listen(changes.Listener());
  keeper.Add(0, &host);
  EXPECT_EQ(changes.GradesUntil(HostGrade::kLate), std::vector<HostGrade>{HostGrade::kLate});
  host.answer = true;
  EXPECT_THAT(changes.GradesUntil(HostGrade::kAlive).back(), HostGrade::kAlive);
  EXPECT_GE(changes.last.silence, seconds(1));
}

}  // namespace
}  // namespace ds::cli
