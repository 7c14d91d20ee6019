// How long the daemon of another host lives: its lease, broken connections, stopped and killed
// daemons.

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/unique_fd.h"
#include "tests/procs/network_daemon.h"
#include "tests/support/daemon_calls.h"
#include "tests/support/tcp_relay.h"

namespace ds::procs {
namespace {

v1::StopRequest StopAtOnce() {
  v1::StopRequest request;
  request.set_job_id(kJob);
  request.set_generation(1);
  return request;
}

// Long enough for what a test does within it on a machine with much else to do.
constexpr double kLeaseSeconds = 3;

// What a generation's events said about its end.
struct End {
  Status watch;
  std::uint64_t last_sequence = 0;
  bool in_order = true;
  std::vector<v1::RankExited> exits;
  v1::StopCause cause = v1::STOP_NONE;
  int ended = 0;
};

End WatchToTheEnd(cli::DaemonClient& client,
                  const std::function<void(const v1::Event&)>& on_event = nullptr) {
  End end;
  end.watch = testing::Watch(client, {kJob, 1, 0}, [&](const v1::Event& event) {
    end.in_order = end.in_order && event.sequence() == ++end.last_sequence;
    if (event.has_rank_exited()) end.exits.push_back(event.rank_exited());
    if (event.has_generation_ended()) {
      ++end.ended;
      end.cause = event.generation_ended().stop_cause();
    }
    if (on_event) on_event(event);
  });
  EXPECT_TRUE(end.in_order) << "an event was lost or repeated";
  return end;
}

TEST(LeaseTest, ADaemonWithoutCallsEnds) {
  const NetworkDaemon daemon({.lease_seconds = 1});
  ASSERT_TRUE(daemon.ok());
  EXPECT_TRUE(daemon.AwaitEnd());
}

TEST(LeaseTest, WithoutARenewalTheRanksAreStopped) {
  const NetworkDaemon daemon({.lease_seconds = kLeaseSeconds});
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  const auto launched = testing::Launch(*client, RanksOf(2, {"wait"}, /*grace_seconds=*/60));
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  // Being watched is not being wanted: only Renew says so.
  const End end = WatchToTheEnd(*client);
  EXPECT_TRUE(end.watch.ok()) << end.watch.message();
  ASSERT_EQ(end.exits.size(), 2U);
  for (const v1::RankExited& exit : end.exits) {
    EXPECT_TRUE(exit.stopping());
    EXPECT_EQ(exit.signal(), SIGTERM);
  }
  EXPECT_EQ(end.cause, v1::STOP_LEASE_EXPIRED);
  EXPECT_TRUE(daemon.AwaitEnd());
}

TEST(LeaseTest, RanksThatIgnoreSigtermAreKilledWhenTheLeaseIsOver) {
  const NetworkDaemon daemon({.lease_seconds = kLeaseSeconds});
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  const auto launched = testing::Launch(*client, RanksOf(2, {"stubborn"}, /*grace_seconds=*/0.05));
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  EXPECT_TRUE(daemon.AwaitEnd());
  for (const auto pid : launched->pids()) EXPECT_FALSE(Exists(static_cast<pid_t>(pid)));
}

// Heartbeats come four times in a lease; a renewal at each keeps the daemon for longer than one.
TEST(LeaseTest, RenewalsKeepItAliveAndHeartbeatsReportItsState) {
  const NetworkDaemon daemon({.lease_seconds = 2 * kLeaseSeconds});
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  ASSERT_TRUE(testing::Launch(*client, RanksOf(2, {"wait"})).ok());
  int heartbeats = 0;
  const End end = WatchToTheEnd(*client, [&](const v1::Event& event) {
    if (!event.has_heartbeat()) return;
    EXPECT_EQ(event.heartbeat().ranks_size(), 2);
    EXPECT_GT(event.heartbeat().ranks(0).rss_bytes(), 0U);
    const Status renewed = Renew(*client);
    ASSERT_TRUE(renewed.ok()) << renewed.message();
    if (++heartbeats == 6) {
      EXPECT_TRUE(testing::Stop(*client, StopAtOnce()).ok());
    }
  });
  EXPECT_EQ(heartbeats, 6);
  EXPECT_EQ(end.cause, v1::STOP_REQUESTED);
}

TEST(LeaseTest, ReleasingItStopsItsRanks) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  const auto launched = testing::Launch(*client, RanksOf(2, {"wait"}));
  ASSERT_TRUE(launched.ok());
  static_cast<void>(Renew(*client, /*release=*/true));
  EXPECT_TRUE(daemon.AwaitEnd());
  for (const auto pid : launched->pids()) EXPECT_FALSE(Exists(static_cast<pid_t>(pid)));
}

// As the kernel closes those of a process that has been killed.
TEST(LeaseTest, WithoutAConnectionOfItsControllerItEndsLongBeforeItsLease) {
  const NetworkDaemon daemon({.lease_seconds = 3600});
  ASSERT_TRUE(daemon.ok());
  auto client = daemon.Connect();
  const auto launched = testing::Launch(*client, RanksOf(2, {"wait"}, /*grace_seconds=*/600));
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  client.reset();
  EXPECT_TRUE(daemon.AwaitEnd());
  for (const auto pid : launched->pids()) EXPECT_FALSE(Exists(static_cast<pid_t>(pid)));
}

TEST(LeaseTest, ANewConnectionOfItsControllerKeepsIt) {
  const NetworkDaemon daemon({.lease_seconds = 3600});
  ASSERT_TRUE(daemon.ok());
  ASSERT_TRUE(testing::Launch(*daemon.Connect(), RanksOf(1, {"wait"})).ok());
  const auto client = daemon.Connect();
  int heartbeats = 0;  // one every two seconds
  const End end = WatchToTheEnd(*client, [&](const v1::Event& event) {
    if (!event.has_heartbeat() || ++heartbeats < 2) return;
    EXPECT_TRUE(testing::Stop(*client, StopAtOnce()).ok());
  });
  EXPECT_EQ(end.cause, v1::STOP_REQUESTED);
}

// A reset by a gateway, for example, proves nothing.
TEST(LeaseTest, ALeaseThatTheUserHasSetRulesAlone) {
  const NetworkDaemon daemon({.lease_seconds = 3600, .lease_decides = true});
  ASSERT_TRUE(daemon.ok());
  v1::LaunchRequest request = RanksOf(1, {});
  request.mutable_ranks(0)->clear_argv();
  for (const char* word : {"/bin/sh", "-c", "sleep 4"}) request.mutable_ranks(0)->add_argv(word);
  const auto launched = testing::Launch(*daemon.Connect(), request);  // no connection is left
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  const UniqueFd rank(
      static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(launched->pids(0)), 0)));
  pollfd ended{rank.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ended, 1, 60'000), 1);
  const End end = WatchToTheEnd(*daemon.Connect());
  ASSERT_EQ(end.exits.size(), 1U);
  EXPECT_EQ(end.exits[0].signal(), 0);
  EXPECT_EQ(end.exits[0].exit_code(), 0);
  EXPECT_EQ(end.cause, v1::STOP_NONE);
}

// A connection that has a megabyte ahead of a renewal would keep it for longer than the lease.
TEST(LeaseTest, OutputOverAThinLinkDelaysNeitherRenewalsNorStops) {
  constexpr std::uint64_t kThin = 128 * 1024, kThick = std::uint64_t{1} << 30;
  const NetworkDaemon daemon({.lease_seconds = kLeaseSeconds});
  ASSERT_TRUE(daemon.ok());
  ds::testing::TcpRelay relay(daemon.port());
  const auto client = daemon.Connect(relay.target());
  ASSERT_TRUE(testing::Launch(*client, RanksOf(1, {"lines", "100000000"})).ok());
  relay.LimitBandwidth(kThin);
  std::atomic<bool> enough = false;
  auto renewals = std::async(std::launch::async, [&] {
    Status renewed;
    while (!enough && renewed.ok()) renewed = Renew(*client);
    if (!renewed.ok()) relay.Refuse();  // the watch of a daemon that has ended would go on
    return renewed;
  });
  int outputs = 0;
  const End end = WatchToTheEnd(*client, [&](const v1::Event& event) {
    if (!event.has_rank_output() || ++outputs != 20) return;
    EXPECT_TRUE(testing::Stop(*client, StopAtOnce()).ok());
    relay.LimitBandwidth(kThick);
  });
  enough = true;
  EXPECT_TRUE(renewals.get().ok());
  EXPECT_TRUE(end.watch.ok()) << end.watch.message();
  EXPECT_EQ(end.cause, v1::STOP_REQUESTED);
}

TEST(LeaseTest, AReleasedDaemonLeavesNoMessages) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  ASSERT_TRUE(Renew(*daemon.Connect(), /*release=*/true).ok());
  EXPECT_TRUE(daemon.AwaitGuardian());
  EXPECT_NE(daemon.log_path(), "");
  EXPECT_FALSE(std::filesystem::exists(daemon.log_path()));
}

TEST(LeaseTest, ADaemonThatEndsWithItsLeaseLeavesItsMessages) {
  const NetworkDaemon daemon({.lease_seconds = kLeaseSeconds});
  ASSERT_TRUE(daemon.ok());
  EXPECT_TRUE(daemon.AwaitGuardian());
  const auto messages = ReadFile(daemon.log_path());
  ASSERT_TRUE(messages.ok()) << messages.status().message();
  EXPECT_NE(messages->find("no message from dsrun within its lease"), std::string::npos);
  EXPECT_NE(messages->find("Z dsrund, process " + std::to_string(daemon.pid()) +
                           ", has ended by itself\n"),
            std::string::npos)
      << *messages;
}

TEST(LeaseTest, OfAKilledDaemonItsGuardianLeavesTheCause) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const auto prepared = Prepare(*daemon.Connect());
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_EQ(prepared->log_path(), daemon.log_path());
  ASSERT_EQ(::kill(daemon.pid(), SIGKILL), 0);
  EXPECT_TRUE(daemon.AwaitGuardian());
  const auto messages = ReadFile(daemon.log_path());
  ASSERT_TRUE(messages.ok()) << messages.status().message();
  EXPECT_NE(messages->find("was ended by signal 9 (Killed)\n"), std::string::npos) << *messages;
}

// The kernel does what a daemon that has been stopped cannot.
TEST(LeaseTest, AStoppedDaemonDiesWithItsLease) {
  const NetworkDaemon daemon({.lease_seconds = kLeaseSeconds});
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  const auto launched = testing::Launch(*client, RanksOf(2, {"session"}, /*grace_seconds=*/600));
  ASSERT_TRUE(launched.ok()) << launched.status().message();
  ASSERT_EQ(::kill(daemon.pid(), SIGSTOP), 0);
  EXPECT_TRUE(daemon.AwaitEnd());
  EXPECT_TRUE(daemon.AwaitGuardian());
  for (const auto pid : launched->pids()) EXPECT_FALSE(Exists(static_cast<pid_t>(pid)));
}

// However late a renewal comes, it counts from the answer that it names.
TEST(LeaseTest, ARenewalThatNamesAnOldAnswerMakesNoLeaseLonger) {
  const NetworkDaemon daemon({.lease_seconds = 2});
  ASSERT_TRUE(daemon.ok());
  // Each has seen no answer yet when it renews.
  while (Renew(*daemon.Connect()).ok()) {
  }
  EXPECT_TRUE(daemon.AwaitEnd());
}

TEST(LeaseTest, AHangUpOfItsSessionIsIgnored) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  ASSERT_EQ(::kill(daemon.pid(), SIGHUP), 0);
  EXPECT_TRUE(Renew(*daemon.Connect()).ok());
}

// SIGTERM: it is ending, but whoever comes back can see the end and hasten it.
TEST(LeaseTest, WhileItIsEndingItCanBeWatchedAndStopped) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  ASSERT_TRUE(testing::Launch(*client, RanksOf(2, {"stubborn"}, /*grace_seconds=*/3600)).ok());
  int ready = 0;
  const Status first = testing::WatchUntil(*client, {kJob, 1, 0}, [&](const v1::Event& event) {
    return event.has_rank_output() && ++ready == 2;
  });
  EXPECT_EQ(first.code(), StatusCode::kCancelled);
  ASSERT_EQ(::kill(daemon.pid(), SIGTERM), 0);
  Status prepared;
  while (prepared.ok()) prepared = Prepare(*client).status();
  EXPECT_EQ(prepared.code(), StatusCode::kUnavailable);
  EXPECT_EQ(prepared.message(), "this daemon is ending");
  EXPECT_TRUE(Renew(*client).ok());
  const End end = WatchToTheEnd(*client, [&](const v1::Event& event) {
    if (event.sequence() == 1) {
      EXPECT_TRUE(testing::Stop(*client, StopAtOnce()).ok());
    }
  });
  EXPECT_TRUE(end.watch.ok()) << end.watch.message();
  EXPECT_EQ(end.cause, v1::STOP_DAEMON_SIGNALLED);
  ASSERT_EQ(end.exits.size(), 2U);
  EXPECT_EQ(end.exits[0].signal(), SIGKILL);
  EXPECT_TRUE(daemon.AwaitEnd());
}

TEST(LeaseTest, AWatchContinuesOverBrokenConnections) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  ds::testing::TcpRelay relay(daemon.port());
  const auto client = daemon.Connect(relay.target());
  constexpr int kLines = 200'000;
  ASSERT_TRUE(testing::Launch(*client, RanksOf(2, {"lines", std::to_string(kLines)})).ok());
  std::uint64_t bytes = 0;
  int cuts = 0;
  std::uint64_t next_cut = 1;
  const End end = WatchToTheEnd(*client, [&](const v1::Event& event) {
    bytes += event.rank_output().data().size();
    if (event.sequence() < next_cut || cuts == 10) return;
    relay.Cut();
    ++cuts;
    next_cut = event.sequence() + 2;
  });
  EXPECT_TRUE(end.watch.ok()) << end.watch.message();
  EXPECT_EQ(end.ended, 1);
  EXPECT_GE(cuts, 3);

  // The same without a network in between.
  const NetworkDaemon undisturbed;
  ASSERT_TRUE(undisturbed.ok());
  const auto straight = undisturbed.Connect();
  ASSERT_TRUE(testing::Launch(*straight, RanksOf(2, {"lines", std::to_string(kLines)})).ok());
  std::uint64_t expected = 0;
  EXPECT_TRUE(WatchToTheEnd(*straight, [&](const v1::Event& event) {
                expected += event.rank_output().data().size();
              }).watch.ok());
  EXPECT_EQ(bytes, expected);
  EXPECT_GT(expected, 2U * kLines);
}

// Nobody is there to see it, and no other daemon comes.
TEST(LeaseTest, NothingIsLeftOfAKilledDaemon) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  v1::LaunchRequest request = RanksOf(2, {"session"});
  request.add_files()->set_name("file");
  const auto launched = testing::Launch(*client, request);
  ASSERT_TRUE(launched.ok());
  std::vector<pid_t> processes(launched->pids().begin(), launched->pids().end());
  const Status watched = testing::Watch(*client, {kJob, 1, 0}, [&](const v1::Event& event) {
    if (!event.has_rank_output()) return;
    processes.push_back(std::stoi(event.rank_output().data()));
    if (processes.size() == 4) ::kill(daemon.pid(), SIGKILL);
  });
  EXPECT_EQ(watched.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(daemon.AwaitGuardian());
  for (const pid_t pid : processes) EXPECT_FALSE(Exists(pid));
}

TEST(LeaseTest, DistinguishesAKilledDaemonFromABrokenConnection) {
  const NetworkDaemon daemon;
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  const auto launched = testing::Launch(*client, RanksOf(1, {"wait"}));
  ASSERT_TRUE(launched.ok());
  const Status watched = testing::Watch(*client, {kJob, 1, 0}, [&](const v1::Event& event) {
    if (event.has_rank_output()) ::kill(daemon.pid(), SIGKILL);
  });
  EXPECT_EQ(watched.code(), StatusCode::kUnavailable);
  EXPECT_NE(watched.message().find("Connection refused"), std::string::npos) << watched.message();
  EXPECT_EQ(client->Probe(std::chrono::seconds(5)).reachability, cli::Reachability::kRefused);
}

// A stopped daemon is silent but there: the connection breaks, and works again when it goes on.
TEST(LeaseTest, AStoppedDaemonResumesWhereItWas) {
  // A dead connection is seen after 6 s; the other 3 are there for a busy machine.
  const NetworkDaemon daemon({.lease_seconds = 9});
  ASSERT_TRUE(daemon.ok());
  const auto client = daemon.Connect();
  ASSERT_TRUE(testing::Launch(*client, RanksOf(1, {"wait"})).ok());
  std::thread waker;
  const End end = WatchToTheEnd(*client, [&](const v1::Event& event) {
    if (!event.has_rank_output()) return;
    ::kill(daemon.pid(), SIGSTOP);
    EXPECT_EQ(client->Probe(std::chrono::seconds(5)).reachability, cli::Reachability::kListening);
    waker = std::thread([&] {
      // A renewal that fails shows that the connection has been given up.
      while (Renew(*client).ok()) {
      }
      ::kill(daemon.pid(), SIGCONT);
    });
  });
  waker.join();
  EXPECT_TRUE(end.watch.ok()) << end.watch.message();
  EXPECT_EQ(end.ended, 1);
}

TEST(LeaseTest, AHeldConnectionEndsByItsKeepalive) {
  const NetworkDaemon daemon({.lease_seconds = 3});
  ASSERT_TRUE(daemon.ok());
  ds::testing::TcpRelay relay(daemon.port());
  const auto client = daemon.Connect(relay.target());
  ASSERT_TRUE(testing::Launch(*client, RanksOf(1, {"wait"})).ok());
  relay.Hold();
  const Status renewed = Renew(*client);
  EXPECT_EQ(renewed.code(), StatusCode::kUnavailable) << "long before its own deadline";
  EXPECT_TRUE(daemon.AwaitEnd()) << "its lease is over";
}

}  // namespace
}  // namespace ds::procs
