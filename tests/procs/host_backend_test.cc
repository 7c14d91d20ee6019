// The host backend between real processes: it connects, it works, and it survives deaths.

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/process_stat.h"
#include "tests/support/rank_processes.h"

namespace ds::comm {
namespace {

using ds::testing::kRankDidNotConnect;
using ds::testing::kRankThrew;
using ds::testing::RankEnd;
using ds::testing::RankProcesses;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(HostBackendTest, RanksAgreeOnTheSum) {
  for (const int size : {1, 2, 4, 8}) {
    RankProcesses ranks(size, [](Communicator& comm) {
      const at::Tensor tensor = at::arange(100000, at::kFloat) * (comm.rank() + 1);
      comm.AllReduce(tensor, ReduceOp::kSum);
      const int total = comm.size() * (comm.size() + 1) / 2;
      return at::equal(tensor, at::arange(100000, at::kFloat) * total) ? 0 : 1;
    });
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(ranks.Wait(rank).exit_code, 0);
  }
}

TEST(HostBackendTest, SharedMemoryHasNoNameAndNoOpenDescriptor) {
  RankProcesses ranks(2, [](Communicator& comm) {
    comm.Barrier();
    const StatusOr<std::string> maps = ReadFile("/proc/self/maps");
    EXPECT_THAT(*maps,
                AllOf(HasSubstr("memfd:dsrun-collectives (deleted)"), Not(HasSubstr("/dev/shm"))));
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the iterator's own descriptor
      EXPECT_THAT(std::filesystem::read_symlink(entry.path(), gone).string(),
                  Not(HasSubstr("memfd")));
    }
    comm.Barrier();
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(ranks.Wait(0).exit_code, 0);
  EXPECT_EQ(ranks.Wait(1).exit_code, 0);
}

TEST(HostBackendTest, SurvivorsNameTheRankThatWasKilled) {
  RankProcesses ranks(4, [](Communicator& comm) {
    const at::Tensor tensor = at::ones({300000}, at::kFloat);
    for (int step = 0; true; ++step) {
      if (comm.rank() == 2 && step == 5) kill(getpid(), SIGKILL);
      comm.AllReduce(tensor, ReduceOp::kAvg);
    }
    return 0;
  });
  const std::string victim = "rank 2 (process " + std::to_string(ranks.pid(2)) + ") ended";
  EXPECT_EQ(ranks.Wait(2).signal, SIGKILL);
  for (const int survivor : {0, 1, 3}) {
    const RankEnd end = ranks.Wait(survivor);
    EXPECT_EQ(end.exit_code, kRankThrew);
    EXPECT_THAT(end.message, AllOf(HasSubstr(victim), HasSubstr("rank " + std::to_string(survivor)),
                                   HasSubstr("all-reduce of 300000 float32 (avg)")));
  }
}

TEST(HostBackendTest, AKilledSenderIsNamedByItsReceiver) {
  RankProcesses ranks(3, [](Communicator& comm) {
    const at::Tensor tensor = at::ones({1000}, at::kFloat);
    if (comm.rank() == 1) kill(getpid(), SIGKILL);
    if (comm.rank() == 0) comm.Recv(tensor, 1);
    return 0;
  });
  const RankEnd end = ranks.Wait(0);
  EXPECT_EQ(end.exit_code, kRankThrew);
  EXPECT_THAT(end.message, AllOf(HasSubstr("rank 1 (process"),
                                 HasSubstr("receive of 1000 float32 from rank 1")));
}

TEST(HostBackendTest, ARankThatFailsIsNamed) {
  RankProcesses ranks(3, [](Communicator& comm) {
    TORCH_CHECK(comm.rank() != 0, "no data");
    comm.Barrier();
    return 0;
  });
  EXPECT_THAT(ranks.Wait(0).message, HasSubstr("no data"));
  for (const int survivor : {1, 2}) {
    const RankEnd end = ranks.Wait(survivor);
    EXPECT_EQ(end.exit_code, kRankThrew);
    EXPECT_THAT(end.message, HasSubstr("rank 0 (process"));
    EXPECT_THAT(end.message, AnyOf(HasSubstr("left the group"), HasSubstr("ended")));
  }
}

TEST(HostBackendTest, SurvivorsReportTheReasonOfAnAbort) {
  RankProcesses ranks(3, [](Communicator& comm) {
    const at::Tensor tensor = at::ones({300000}, at::kFloat);
    for (int step = 0; true; ++step) {
      if (comm.rank() == 1 && step == 5) {
        comm.Abort("no space left");
        std::_Exit(7);
      }
      comm.AllReduce(tensor, ReduceOp::kAvg);
    }
    return 0;
  });
  EXPECT_EQ(ranks.Wait(1).exit_code, 7);
  for (const int survivor : {0, 2}) {
    EXPECT_THAT(ranks.Wait(survivor).message,
                AllOf(HasSubstr("rank 1 has given up: no space left; rank " +
                                std::to_string(survivor) + " was in all-reduce of 300000")));
  }
}

// Rank 0 comes only when rank 1 is stopped.
TEST(HostBackendTest, ARankThatASignalHasStoppedIsNamed) {
  RankProcesses ranks(2,
                      [](Communicator& comm) {
                        const at::Tensor pid = at::full({1}, getpid(), at::kInt);
                        if (comm.rank() == 1) {
                          comm.Send(pid, 0);
                          raise(SIGSTOP);
                        } else {
                          comm.Recv(pid, 1);
                          while (!IsStopped(pid.item<int>())) sched_yield();
                        }
                        comm.Barrier();
                        return 0;
                      },
                      {.collective_timeout = std::chrono::milliseconds(300)});
  EXPECT_THAT(ranks.Wait(0).message,
              AllOf(HasSubstr("rank 1 (process " + std::to_string(ranks.pid(1)) + ")"),
                    HasSubstr("which a signal has stopped")));
}

// Rank 1 is stuck in its own code, on the host of rank 0 or on another one.
TEST(HostBackendTest, ARankThatHangsIsNamedWhenItsTimeIsUp) {
  for (const std::vector<int>& hosts : {std::vector{2}, std::vector{1, 1}}) {
    RankProcesses ranks(hosts,
                        [](Communicator& comm) {
                          while (comm.rank() == 1) pause();
                          try {
                            comm.Barrier();
                          } catch (const c10::DistNetworkError&) {
                            const Absence absence = comm.absence();
                            EXPECT_EQ(absence.kind, Absence::Kind::kLate);
                            EXPECT_EQ(absence.ranks, std::vector{1});
                            if (::testing::Test::HasFailure()) return 1;
                            throw;
                          }
                          return 0;
                        },
                        {.collective_timeout = std::chrono::milliseconds(1000)});
    const RankEnd end = ranks.Wait(0);
    EXPECT_EQ(end.exit_code, kRankThrew);
    EXPECT_THAT(end.message, AllOf(HasSubstr("rank 1 ("), HasSubstr("did not arrive within 1 s"),
                                   HasSubstr("was in barrier")));
  }
}

// Rank 3 ends when it knows that the others are about to wait: rank 0 for all ranks, the others for
// messages of rank 3, which shares the host of one of them.
TEST(HostBackendTest, AnAbortEndsCollectivesAndMessagesOfAllRanksWithItsReason) {
  for (const std::vector<int>& hosts :
       {std::vector{4}, std::vector{2, 2}, std::vector{1, 1, 1, 1}}) {
    RankProcesses ranks(hosts, [](Communicator& comm) {
      const at::Tensor ready = at::zeros({1}, at::kInt);
      const at::Tensor outgoing = at::ones({300000}, at::kFloat);
      const at::Tensor incoming = at::zeros({300000}, at::kFloat);
      if (comm.rank() == 3) {
        for (const int peer : {0, 1, 2}) comm.Recv(ready, peer);
        comm.Abort("no space left");
        std::_Exit(7);
      }
      comm.Send(ready, 3);
      if (comm.rank() == 0) {
        comm.AllReduce(outgoing, ReduceOp::kSum);
      } else {
        comm.SendRecv(outgoing, 3, incoming, 3);
      }
      return 0;
    });
    EXPECT_EQ(ranks.Wait(3).exit_code, 7);
    for (const int rank : {0, 1, 2}) {
      const RankEnd end = ranks.Wait(rank);
      EXPECT_EQ(end.exit_code, kRankThrew);
      EXPECT_THAT(end.message, HasSubstr("rank 3 has given up: no space left"));
      EXPECT_THAT(end.message, HasSubstr(rank == 0 ? "all-reduce of 300000" : "300000 float32"));
    }
  }
}

// Rank 1 says through a pipe when it has met rank 0, which then waits for it. What ends the wait
// comes at once: nothing here has a timeout of less than half a minute.
class EndOfAWaitTest : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  static constexpr std::chrono::seconds kSoon{10};  // on a machine with much else to do

  EndOfAWaitTest() { EXPECT_EQ(::pipe2(met_, O_CLOEXEC), 0); }
  ~EndOfAWaitTest() override {
    for (const int end : met_) ::close(end);  // -1 is no descriptor
  }

  // Rank 1 does `last`, and then nothing any more.
  RankProcesses Start(const std::function<void(Communicator&)>& last) {
    return RankProcesses(GetParam(), [this, last](Communicator& comm) {
      comm.Barrier();
      if (comm.rank() == 1) {
        EXPECT_EQ(::write(met_[1], "x", 1), 1);
        last(comm);
        while (true) ::pause();
      }
      comm.AllReduce(at::ones({5}), ReduceOp::kSum);
      return 0;
    });
  }
  // Reads the pipe's end where the ranks have ended before: they alone have the other end of it.
  void AwaitMeeting() {
    ::close(std::exchange(met_[1], -1));
    char byte = 0;
    ASSERT_EQ(::read(met_[0], &byte, 1), 1);
    since_ = std::chrono::steady_clock::now();
  }
  void ExpectSoon() const { EXPECT_LT(std::chrono::steady_clock::now() - since_, kSoon); }

 private:
  int met_[2] = {-1, -1};
  std::chrono::steady_clock::time_point since_;
};

TEST_P(EndOfAWaitTest, ForAPeerThatIsKilledComesAtOnce) {
  RankProcesses ranks = Start([](Communicator&) {});
  AwaitMeeting();
  ASSERT_EQ(::kill(ranks.pid(1), SIGKILL), 0);
  EXPECT_THAT(ranks.Wait(0).message, HasSubstr("rank 1"));
  ExpectSoon();
}

TEST_P(EndOfAWaitTest, ForAPeerThatGivesUpComesWhileItIsThere) {
  RankProcesses ranks = Start([](Communicator& comm) { comm.Abort("no space left"); });
  AwaitMeeting();
  EXPECT_THAT(ranks.Wait(0).message, HasSubstr("rank 1 has given up: no space left"));
  ExpectSoon();
  siginfo_t ended{};  // kill(2) would find one that nobody has waited for, too
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(ranks.pid(1)), &ended, WEXITED | WNOHANG | WNOWAIT),
            0);
  EXPECT_EQ(ended.si_pid, 0) << "it has ended";
}

INSTANTIATE_TEST_SUITE_P(Hosts, EndOfAWaitTest,
                         ::testing::Values(std::vector{2}, std::vector{1, 1}),
                         [](const auto& info) {
                           return info.param.size() == 1 ? "OneHost" : "TwoHosts";
                         });

int CountThreads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

// One that moves frames between hosts, and one for each group with asynchronous calls.
TEST(ThreadsTest, ARankHasNoMoreThanItNeeds) {
  for (const std::vector<int>& hosts : {std::vector{2}, std::vector{1, 1}}) {
    const int own = static_cast<int>(hosts.size());
    RankProcesses ranks(hosts, [own](Communicator& comm) {
      comm.AllReduce(at::ones({5}), ReduceOp::kSum);
      if (CountThreads() != own) return CountThreads();
      comm.Group("pair", {0, 1}).AllReduceAsync(at::ones({5}), ReduceOp::kSum).wait();
      comm.Barrier();
      return CountThreads() == own + 1 ? 0 : CountThreads();
    });
    EXPECT_EQ(ranks.Wait(0).exit_code, 0) << hosts.size() << " hosts";
    EXPECT_EQ(ranks.Wait(1).exit_code, 0) << hosts.size() << " hosts";
  }
}

TEST(HostBackendTest, DisagreementIsNamedOnEveryRank) {
  RankProcesses ranks(3, [](Communicator& comm) {
    const at::Tensor tensor = at::ones({comm.rank() == 1 ? 11 : 10}, at::kLong);
    comm.AllReduce(tensor, ReduceOp::kSum);
    return 0;
  });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(ranks.Wait(rank).message, AllOf(HasSubstr("rank 0 is in all-reduce of 10 int64"),
                                                HasSubstr("rank 1 in all-reduce of 11 int64")));
  }
}

TEST(ConnectWorldTest, WithoutRankZeroTheOthersGiveUp) {
  RankIdentity identity;
  identity.rank = identity.local_rank = 1;
  identity.world_size = identity.local_world_size = 2;
  identity.job_id = "without-rank-zero";
  const Status status =
      ConnectWorld(identity, {}, {.connect_timeout = std::chrono::milliseconds(200)}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("rank 1 cannot join"), HasSubstr("rank 0 did not arrive")));
}

TEST(ConnectWorldTest, ARankThatNeverJoinsIsNamed) {
  RankIdentity identity;
  identity.world_size = identity.local_world_size = 2;
  identity.job_id = "without-rank-one";
  const Status status =
      ConnectWorld(identity, {}, {.connect_timeout = std::chrono::milliseconds(200)}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 did not arrive"));
}

TEST(ConnectWorldTest, RanksOnSeveralHostsNeedDsrunToMeet) {
  RankIdentity identity;
  identity.world_size = 4;
  identity.local_world_size = 2;
  EXPECT_EQ(ConnectWorld(identity, {}).status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ds::comm
