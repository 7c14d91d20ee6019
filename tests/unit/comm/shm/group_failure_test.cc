// What happens to a group whose ranks disagree, leave or do not come.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/process_stat.h"
#include "runtime/comm/shm/wait_timeout.h"
#include "tests/unit/comm/shm/thread_group.h"

namespace ds::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Call {
  std::size_t count;
  ElementType type = ElementType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

// Rank 1 makes `odd`, the others `usual`; every rank must get the same error and keep its data.
void ExpectMismatch(const Call& usual, const Call& odd, const std::string& says) {
  RunGroup(SmallChunks(3), [&](HostGroup& group) {
    const Call& call = group.rank() == 1 ? odd : usual;
    std::vector<std::byte> data(call.count * 8, std::byte{1});
    const Status status = group.AllReduce(data.data(), {call.count, call.type}, call.op);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 0 is in"), HasSubstr("rank 1 in " + says)));
    EXPECT_EQ(data, std::vector<std::byte>(call.count * 8, std::byte{1}));
  });
}

TEST(MismatchTest, DifferentSizesAreNamed) {
  ExpectMismatch({.count = 100}, {.count = 101}, "all-reduce of 101 float32 (sum)");
}

TEST(MismatchTest, SizesOfDifferentlyManyRoundsAreNamed) {
  ExpectMismatch({.count = 100}, {.count = 100000}, "all-reduce of 100000 float32 (sum)");
  ExpectMismatch({.count = 100000}, {.count = 0}, "all-reduce of 0 float32 (sum)");
}

TEST(MismatchTest, DifferentTypesAndReductionsAreNamed) {
  ExpectMismatch({.count = 8}, {.count = 8, .type = ElementType::kInt32}, "all-reduce of 8 int32");
  ExpectMismatch({.count = 8}, {.count = 8, .op = ReduceOp::kMax}, "all-reduce of 8 float32 (max)");
}

TEST(MismatchTest, DifferentCollectivesAreNamed) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    float value = 1;
    const Status status = group.rank() == 0 ? group.Barrier()
                                            : group.Broadcast(reinterpret_cast<std::byte*>(&value),
                                                              {1, ElementType::kFloat32}, 1);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 0 is in barrier"),
                                        HasSubstr("rank 1 in broadcast of 1 float32 from rank 1")));
  });
}

TEST(MismatchTest, CallsThatDifferInTheirTagAreNamed) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    std::vector<std::byte> mine(16), all(32, std::byte{1});
    const std::vector<std::byte*> outputs = {all.data(), all.data() + 16};
    group.TagNextCall(CallTag("layer.7.w"));
    EXPECT_TRUE(group.AllGather(outputs, mine.data(), {4, ElementType::kFloat32}).ok());
    EXPECT_TRUE(group.Barrier().ok()) << "a tag is for one call";
    all.assign(32, std::byte{1});
    group.TagNextCall(CallTag(group.rank() == 0 ? "layer.0.w" : "layer.1.w"));
    const Status status = group.AllGather(outputs, mine.data(), {4, ElementType::kFloat32});
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("rank 0 is in all-gather of 4 float32 for layer.0.w"),
                      HasSubstr("rank 1 in all-gather of 4 float32 for layer.1.w")));
    const std::size_t peers = group.rank() == 0 ? 16 : 0;
    EXPECT_EQ(all[peers], std::byte{1}) << "nothing has come";
  });
}

TEST(AwaitEndTest, ReportsAnEndWithoutAWaitingCall) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    if (group.rank() == 0) return group.Abort("rank 0 has given up: enough");
    EXPECT_EQ(group.AwaitEnd({}), "rank 0 has given up: enough");
  });
}

TEST(AwaitEndTest, ReportsTheFailureOfACall) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    group.TagNextCall(CallTag(group.rank() == 0 ? "layer.0.w" : "layer.1.w"));
    EXPECT_FALSE(group.Barrier().ok());
    EXPECT_THAT(group.AwaitEnd({}), HasSubstr("found that the ranks disagree about a collective"));
  });
}

TEST(AwaitEndTest, EndsWithItsCaller) {
  RunGroup(SmallChunks(1), [](HostGroup& group) {
    std::string heard = "nothing yet";
    std::jthread([&](const std::stop_token& stop) { heard = group.AwaitEnd(stop); });
    EXPECT_EQ(heard, "");
    EXPECT_TRUE(group.Barrier().ok()) << "the group goes on";
  });
}

TEST(CallTagTest, KeepsTheEndOfALongText) {
  const std::string name = std::string(60, 'x') + ".layers.12.weight";
  EXPECT_EQ(CallTag(name).text(), name.substr(name.size() - 47));
  EXPECT_EQ(CallTag("w").text(), "w");
}

TEST(MismatchTest, AllToAllNamesTheSenderAndItsSizes) {
  RunGroup(SmallChunks(2), [](HostGroup& group) {
    std::vector<std::byte> data(64);
    const std::vector<std::byte*> outputs = {data.data(), data.data() + 16};
    const std::vector<const std::byte*> inputs = {data.data() + 32, data.data() + 48};
    const std::vector<std::uint64_t> sends = {4, 4};
    const std::vector<std::uint64_t> expects = {4, group.rank() == 0 ? 5u : 4u};
    const Status status = group.AllToAll({.outputs = outputs,
                                          .output_counts = expects,
                                          .inputs = inputs,
                                          .input_counts = sends,
                                          .type = ElementType::kUInt8});
    EXPECT_FALSE(status.ok());
    if (group.rank() == 0) {
      EXPECT_THAT(status.message(), HasSubstr("rank 1 sends 4 elements to rank 0"));
    }
  });
}

TEST(LeavingTest, ARankThatLeavesEndsTheOthersWaits) {
  RunGroup(SmallChunks(4), [](HostGroup& group) {
    ASSERT_TRUE(group.Barrier().ok());
    if (group.rank() == 2) return;
    const Status status = group.Barrier();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("rank 2 left the group"));
  });
}

TEST(LeavingTest, LeavingAfterTheLastCollectiveIsHarmless) {
  for (int repeat = 0; repeat < 200; ++repeat) {
    RunGroup(SmallChunks(4), [](HostGroup& group) {
      double value = 1;
      const Status status = group.AllReduce(reinterpret_cast<std::byte*>(&value),
                                            {1, ElementType::kFloat64}, ReduceOp::kSum);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(value, 4);
    });
  }
}

// Rank 1 stays alive, but away, until rank 0 has given up.
TEST(TimeoutTest, NamesAMissingRank) {
  HostGroupOptions options = SmallChunks(2);
  options.timeout = std::chrono::milliseconds(1);
  std::mutex mutex;
  std::condition_variable gave_up;
  bool done = false;
  RunGroup(options, [&](HostGroup& group) {
    std::unique_lock lock(mutex);
    if (group.rank() == 1) {
      gave_up.wait(lock, [&] { return done; });
      return;
    }
    lock.unlock();
    const Status status = group.Barrier();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 did not arrive"));
    lock.lock();
    done = true;
    gave_up.notify_one();
  });
}

using std::chrono::seconds;

TEST(WaitTimeoutTest, TimeWithoutChecksDoesNotCount) {
  const WaitTimeout::Time begin{};
  WaitTimeout wait_timeout(seconds(10), seconds(1), begin);
  EXPECT_EQ(wait_timeout.until_look(), seconds(1));
  wait_timeout.Look(begin + seconds(3600));
  EXPECT_FALSE(wait_timeout.is_over()) << "nobody has looked for an hour";
  for (int i = 1; i <= 17; ++i) {
    EXPECT_FALSE(wait_timeout.is_over());
    wait_timeout.Look(begin + seconds(3600) + std::chrono::milliseconds(500 * i));
  }
  EXPECT_EQ(wait_timeout.until_look(), std::chrono::milliseconds(500));
  wait_timeout.Look(begin + seconds(3609));
  EXPECT_TRUE(wait_timeout.is_over());
  EXPECT_EQ(wait_timeout.until_look(), seconds(0));
}

// Ranks 1 and 3 are away, ranks 0 and 2 wait.
TEST(TimeoutTest, AllThatDidNotComeAreNamed) {
  HostGroupOptions options = SmallChunks(4);
  options.timeout = std::chrono::milliseconds(200);
  options.names = {10, 11, 12, 13};
  std::latch both_waited(2);
  std::atomic<int> long_waits = 0;
  options.on_long_wait = [&] { ++long_waits; };
  RunGroup(options, [&](HostGroup& group) {
    if (group.rank() % 2 == 1) return both_waited.wait();
    EXPECT_THAT(group.Barrier().message(),
                HasSubstr("rank 11, rank 13 did not arrive within 0 s while rank 1" +
                          std::to_string(group.rank()) + " was in barrier"));
    const Absence absence = group.family()->absence();
    if (absence.kind != Absence::Kind::kNone) {  // this one's time was up first
      EXPECT_EQ(absence.kind, Absence::Kind::kLate);
      EXPECT_EQ(absence.ranks, (std::vector{11, 13}));
    }
    both_waited.count_down();
  });
  EXPECT_GE(long_waits, 1);
}

// Longer than a busy machine keeps a rank from running.
constexpr std::chrono::seconds kTimeout(4);

// Says on `ready` that rank 0 is about to wait; a byte on `go` lets rank 1 come.
int WaitForRankOne(int ready, int go) {
  HostGroupOptions options = SmallChunks(2);
  options.timeout = kTimeout;
  std::atomic<bool> good = true;
  RunGroup(options, [&](HostGroup& group) {
    char byte = 0;
    if (group.rank() == 0 && ::write(ready, "0", 1) != 1) good = false;
    if (group.rank() == 1 && ::read(go, &byte, 1) != 1) good = false;
    if (!group.Barrier().ok()) good = false;
  });
  return good ? 0 : 1;
}

// A job that is suspended for longer than its ranks wait for each other goes on.
TEST(TimeoutTest, TimeInWhichTheJobIsStoppedDoesNotCount) {
  int ready[2] = {-1, -1}, go[2] = {-1, -1};
  ASSERT_EQ(::pipe(ready) + ::pipe(go), 0);
  const UniqueFd ready_out(ready[0]), ready_in(ready[1]), go_out(go[0]), go_in(go[1]);
  const pid_t job = fork();
  if (job == 0) _exit(WaitForRankOne(ready[1], go[0]));
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  kill(job, SIGSTOP);
  int status = 0;
  waitpid(job, &status, WUNTRACED);
  std::this_thread::sleep_for(kTimeout + std::chrono::milliseconds(500));
  kill(job, SIGCONT);
  EXPECT_EQ(::write(go[1], "1", 1), 1);
  waitpid(job, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Rank 0 waits at a barrier, rank 1 for a message, rank 2 for room; rank 3 comes later.
TEST(AbortTest, PendingAndLaterCallsOfAllRanksReportTheCause) {
  HostGroupOptions options = SmallChunks(4);
  options.names = {10, 11, 12, 13};
  std::latch aborted(1);
  RunGroup(options, [&](HostGroup& group) {
    std::vector<std::byte> data(4 << 20);
    const Elements elements{data.size(), ElementType::kUInt8};
    const auto call = [&]() -> Status {
      if (group.rank() == 1) return group.Receive(data.data(), elements, 0);
      if (group.rank() == 2) return group.Send(data.data(), elements, 0);
      return group.Barrier();
    };
    if (group.rank() == 3) {
      std::jthread([&] { group.Abort("rank 13 has given up: no space left"); }).join();
      group.Abort("not the first");
      aborted.count_down();
    }
    if (group.rank() == 0) aborted.wait();
    for (int repeat = 0; repeat < 2; ++repeat) {
      const Status status = call();
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_THAT(status.message(), StartsWith("rank 13 has given up: no space left; rank 1" +
                                               std::to_string(group.rank()) + " was in "));
    }
  });
}

// However the two meet: rank 0 may be on its way to sleep.
TEST(AbortTest, RacesWithStartingWaits) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::barrier both(2);
    RunGroup(SmallChunks(2), [&](HostGroup& group) {
      both.arrive_and_wait();
      if (group.rank() == 1) {
        group.Abort("rank 1 has given up");
      } else {
        EXPECT_THAT(group.Barrier().message(), StartsWith("rank 1 has given up; "));
      }
      both.arrive_and_wait();  // none has left before
    });
  }
}

TEST(ProcessTest, AStoppedProcessIsSeen) {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  EXPECT_FALSE(IsStopped(child));
  kill(child, SIGSTOP);
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  EXPECT_TRUE(IsStopped(child));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  EXPECT_FALSE(IsStopped(child));
}

// As when a rank has died before anybody looked, and this process has got its id.
TEST(PeerWatchTest, AProcessThatStartedAtAnotherTimeIsNotThePeer) {
  const ProcessId self = ProcessId::Of(getpid());
  ASSERT_GT(self.started, 0u);
  PeerWatch watch(2);
  EXPECT_TRUE(watch.HasEnded(1, {.pid = self.pid, .started = self.started - 1}));
  EXPECT_TRUE(watch.HasEnded(1, {.pid = self.pid, .started = self.started - 1}));
  EXPECT_FALSE(watch.HasEnded(0, self));
  EXPECT_FALSE(watch.HasEnded(0, {.pid = self.pid})) << "cannot tell";
}

}  // namespace
}  // namespace ds::comm
