// Calls that go on by themselves, many at once, and the end of a group. Ranks are threads.

#include "runtime/comm/work.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "runtime/comm/host_backend.h"
#include "tests/support/rank_harness.h"
#include "tests/unit/comm/net/thread_world.h"

namespace ds::comm {
namespace {

using ds::testing::RunRanks;
using ::testing::HasSubstr;

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

// As NCCL returns it of a call that it has put on the current stream.
TEST(WorkTest, WithoutACallHasEndedWell) {
  Work none(nullptr);
  none.wait();
  EXPECT_TRUE(none.done());
  EXPECT_TRUE(none.error().ok());
}

// Rank 1 takes part only when rank 0 has issued all its calls and is back from them.
TEST(WorkTest, CallsReturnBeforeTheOtherRankArrives) {
  std::latch issued(1);
  RunRanks(2, [&](Communicator& comm) {
    const at::Tensor sum = at::full({70000}, comm.rank() + 1, at::kFloat);
    const at::Tensor all = at::zeros({8}, at::kFloat);
    const at::Tensor part = at::zeros({4}, at::kFloat);
    if (comm.rank() == 1) issued.wait();
    std::vector<Work> work;
    work.push_back(comm.AllReduceAsync(sum, ReduceOp::kSum, "sum"));
    work.push_back(comm.AllGatherAsync(all, at::full({4}, comm.rank(), at::kFloat)));
    work.push_back(comm.ReduceScatterAsync(part, all, ReduceOp::kSum));
    if (comm.rank() == 0) {
      for (const Work& each : work) EXPECT_TRUE(!each.done() && each.error().ok());
      issued.count_down();
    }
    const at::Tensor after = at::ones({3});
    comm.AllReduce(after, ReduceOp::kSum);  // runs behind them
    EXPECT_EQ(after.sum().item<float>(), 6);
    for (Work& each : work) {
      each.wait();
      EXPECT_TRUE(each.done() && each.error().ok());
    }
    EXPECT_TRUE(at::equal(sum, at::full({70000}, 3, at::kFloat)));
    EXPECT_TRUE(at::equal(part, at::full({4}, 2.0 * comm.rank(), at::kFloat)));
  });
}

TEST(WorkTest, KeepsItsTensorsUntilTheCallHasEnded) {
  std::latch issued(1);
  RunRanks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) issued.wait();
    at::Tensor tensor = at::ones({1000});
    c10::weak_intrusive_ptr<c10::TensorImpl> watched(tensor.getIntrusivePtr());
    std::optional<Work> work = comm.AllReduceAsync(tensor, ReduceOp::kSum);
    tensor.reset();
    if (comm.rank() == 0) {
      EXPECT_FALSE(watched.expired());
      issued.count_down();
    }
    work->wait();
    work.reset();
    // The queue has let go of a call before it runs the next one.
    comm.AllReduceAsync(at::ones({1}), ReduceOp::kSum).wait();
    EXPECT_TRUE(watched.expired());
  });
}

TEST(WorkTest, AFailureIsThrownByTheWaitAndByAllLaterCalls) {
  RunRanks(2, [](Communicator& comm) {
    const at::Tensor tensor = at::ones({comm.rank() == 0 ? 4 : 5});
    Work first = comm.AllReduceAsync(tensor, ReduceOp::kSum);
    Work second = comm.AllReduceAsync(at::ones({2}), ReduceOp::kSum);
    const std::string error = ErrorOf([&] { first.wait(); });
    EXPECT_THAT(error, HasSubstr("rank 0 is in all-reduce of 4 float32"));
    EXPECT_EQ(first.error().message(), error);
    EXPECT_EQ(ErrorOf([&] { second.wait(); }), error);
    EXPECT_EQ(ErrorOf([&] { comm.Barrier(); }), error);
  });
}

TEST(WorkTest, ACommunicatorThatGoesWithCallsUnderWayEndsThem) {
  std::latch gone(1);
  std::optional<Work> left;
  RunRanks(2, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      auto group = std::make_unique<Communicator>(
          static_cast<HostBackend&>(*comm.backend()).MakeSubgroup("short", {0, 1}));
      left = group->AllReduceAsync(at::ones({10}), ReduceOp::kSum);
      group.reset();
      gone.count_down();
      return;
    }
    Communicator& group = comm.Group("short", {0, 1});
    gone.wait();
    EXPECT_THAT(ErrorOf([&] { group.Barrier(); }), HasSubstr("rank 0 left"));
  });
  EXPECT_FALSE(left->error().ok());
}

TEST(WorkTest, TheFutureOfACallHasItsTensors) {
  RunRanks(2, [](Communicator& comm) {
    std::vector<at::Tensor> tensors = {at::ones({3})};
    const auto work = comm.backend()->allreduce(tensors);
    const auto future = work->getFuture();
    future->waitAndThrow();
    EXPECT_EQ(future->value().toTensorList().get(0).sum().item<float>(), 6);
    EXPECT_TRUE(work->wait() && work->isCompleted() && work->isSuccess());
    EXPECT_EQ(work->result().size(), 1u);
  });
}

// Tensors of a few shapes, of rank `rank`.
std::vector<at::Tensor> ManyTensors(int rank, std::int64_t factor, at::ScalarType type) {
  std::vector<at::Tensor> tensors;
  for (const std::int64_t count : {1, 0, 77, 5000, 3}) {
    const at::Tensor values = at::arange(factor * count, at::kFloat) * 0.37 + rank * 1.1 + count;
    tensors.push_back(values.sin().to(type));
  }
  return tensors;
}

TEST(CoalescedTest, GivesTheBitsOfSingleCalls) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    RunRanks(3, [&](Communicator& comm) {
      const auto many = ManyTensors(comm.rank(), 1, type);
      const auto single = ManyTensors(comm.rank(), 1, type);
      comm.AllReduceMany(many, ReduceOp::kAvg);
      for (const at::Tensor& tensor : single) comm.AllReduce(tensor, ReduceOp::kAvg);
      for (std::size_t i = 0; i < many.size(); ++i) EXPECT_TRUE(at::equal(many[i], single[i]));

      const auto wide = ManyTensors(comm.rank(), 3, type);
      const auto parts = ManyTensors(comm.rank(), 1, type);
      comm.ReduceScatterMany(parts, wide, ReduceOp::kSum);
      for (std::size_t i = 0; i < wide.size(); ++i) {
        const at::Tensor part = at::empty_like(parts[i]);
        comm.ReduceScatter(part, wide[i], ReduceOp::kSum);
        EXPECT_TRUE(at::equal(parts[i], part));
      }
      comm.AllGatherMany(wide, parts, "all");
      for (std::size_t i = 0; i < wide.size(); ++i) {
        const at::Tensor full = at::empty_like(wide[i]);
        comm.AllGather(full, parts[i]);
        EXPECT_TRUE(at::equal(wide[i], full));
      }
    });
  }
}

// Between hosts: one frame, in place of one for each.
TEST(CoalescedTest, TakesOneRound) {
  RunWorld({1, 1}, [](WorldGroup& world) {
    auto made = world.MakeSubgroup("all", {0, 1});
    ASSERT_TRUE(made.ok());
    Communicator comm(c10::make_intrusive<HostBackend>(std::move(made).value()));
    const std::vector<at::Tensor> inputs(50, at::ones({7}));
    const std::vector<at::Tensor> outputs(50, at::empty({14}));
    const std::uint64_t before = world.links().bytes().sent;
    comm.AllGatherMany(outputs, inputs);
    EXPECT_EQ(world.links().bytes().sent - before, sizeof(FrameHeader) + 50 * 7 * sizeof(float));
  });
}

TEST(CoalescedTest, OtherTensorsOfTheSameLengthAreAnError) {
  RunRanks(2, [](Communicator& comm) {
    const std::int64_t first = comm.rank() == 0 ? 3 : 5;
    const std::string error = ErrorOf([&] {
      comm.AllReduceMany({at::ones({first}), at::ones({8 - first})}, ReduceOp::kSum);
    });
    EXPECT_THAT(error, HasSubstr("the ranks disagree"));
  });
}

TEST(CommunicatorAbortTest, AllRanksAndGroupsLearnTheReason) {
  std::latch made(4);
  RunRanks(4, [&](Communicator& comm) {
    Communicator& pair =
        comm.Group("pair", comm.rank() < 2 ? std::vector{0, 1} : std::vector{2, 3});
    made.arrive_and_wait();
    if (comm.rank() == 3) comm.Abort("no space left");
    std::optional<Work> work;
    if (comm.rank() == 0) work = comm.AllReduceAsync(at::ones({5}), ReduceOp::kSum);
    Communicator& waits_in = comm.rank() == 2 ? pair : comm;
    for (int later = 0; later < 2; ++later) {
      EXPECT_THAT(ErrorOf([&] { waits_in.Barrier(); }),
                  HasSubstr("rank 3 has given up: no space left"));
    }
    if (work.has_value()) {
      EXPECT_THAT(work->error().message(), HasSubstr("rank 3 has given up"));
    }
  });
}

TEST(CommunicatorGroupTest, OtherRanksUnderAKnownNameAreRefused) {
  RunRanks(3, [](Communicator& comm) {
    Communicator& all = comm.Group("all", {0, 1, 2});
    EXPECT_EQ(&comm.Group("all", {0, 1, 2}), &all);
    EXPECT_THAT(ErrorOf([&] { comm.Group("all", {comm.rank()}); }), HasSubstr("has other ranks"));
    EXPECT_THAT(ErrorOf([&] { comm.Group("none", {(comm.rank() + 1) % 3}); }),
                HasSubstr("among them"));
    all.Barrier();
  });
}

TEST(SendRecvTest, TensorsGoRoundARing) {
  for (const int size : {2, 3, 8}) {
    RunRanks(size, [](Communicator& comm) {
      const int next = (comm.rank() + 1) % comm.size();
      const int previous = (comm.rank() + comm.size() - 1) % comm.size();
      const at::Tensor mine = at::full({1 << 21}, comm.rank(), at::kFloat);
      const at::Tensor theirs = at::empty({1 << 21}, at::kFloat);
      comm.SendRecv(mine, next, theirs, previous);
      EXPECT_TRUE(at::equal(theirs, at::full({1 << 21}, previous, at::kFloat)));
    });
  }
}

// Runs ranks on one host, and on two with one rank each or more.
void RunOnOneHostAndOnTwo(const std::function<void(Communicator&)>& body) {
  RunRanks(4, body);
  for (const std::vector<int>& hosts : {std::vector{2, 2}, std::vector{1, 3}}) {
    RunWorld(hosts, [&](WorldGroup& world) {
      auto made = world.MakeSubgroup("all", {0, 1, 2, 3});
      ASSERT_TRUE(made.ok());
      Communicator comm(c10::make_intrusive<HostBackend>(std::move(made).value()));
      body(comm);
    });
  }
}

// A line of stages, as a pipeline has them: what a stage has made goes to the next one while it
// makes more.
TEST(MessageTest, GoOnByThemselvesInOrder) {
  constexpr int kMessages = 5;
  RunOnOneHostAndOnTwo([](Communicator& comm) {
    const auto value = [](int stage, int i) {
      return at::full({70000}, 10 * stage + i, at::kFloat);
    };
    std::vector<Work> work;
    std::vector<at::Tensor> arrived;
    for (int i = 0; i < kMessages; ++i) {
      const std::string tag = "micro-batch " + std::to_string(i);
      if (comm.rank() > 0) {
        arrived.push_back(at::empty({70000}, at::kFloat));
        work.push_back(comm.RecvAsync(arrived.back(), comm.rank() - 1, tag));
      }
      if (comm.rank() + 1 < comm.size()) {
        work.push_back(comm.SendAsync(value(comm.rank(), i), comm.rank() + 1, tag));
      }
    }
    for (Work& each : work) each.wait();
    for (int i = 0; i < static_cast<int>(arrived.size()); ++i) {
      EXPECT_TRUE(at::equal(arrived[i], value(comm.rank() - 1, i)));
    }
  });
}

// Rank 1 sends only when rank 0 has issued all it will do.
TEST(MessageTest, ReturnBeforeTheOtherRankArrives) {
  std::latch issued(1);
  RunRanks(2, [&](Communicator& comm) {
    const at::Tensor theirs = at::zeros({8}), back = at::zeros({8}), all = at::zeros({8});
    const at::Tensor mine = at::full({8}, comm.rank() + 1, at::kFloat);
    const int peer = 1 - comm.rank();
    if (comm.rank() == 1) {
      issued.wait();
      comm.Send(mine, peer);
    }
    std::vector<Work> work;
    if (comm.rank() == 0) work.push_back(comm.RecvAsync(theirs, peer));
    work.push_back(comm.SendRecvAsync(mine, peer, back, peer));
    work.push_back(comm.AllToAllAsync(all, mine));
    if (comm.rank() == 0) {
      for (const Work& each : work) EXPECT_FALSE(each.done());
      issued.count_down();
    }
    for (Work& each : work) each.wait();
    if (comm.rank() == 0) EXPECT_EQ(theirs.sum().item<float>(), 16);
    EXPECT_EQ(back.sum().item<float>(), 8.0F * static_cast<float>(peer + 1));
    EXPECT_EQ(all.sum().item<float>(), 12);
  });
}

TEST(MessageTest, TagsThatDifferAreAnErrorThatNamesBoth) {
  for (const int sender : {1, 2}) {  // on the receiver's host, and on the other one
    std::string error;
    RunWorld({2, 1}, [&](WorldGroup& world) {
      auto made = world.MakeSubgroup("all", {0, 1, 2});
      ASSERT_TRUE(made.ok());
      Communicator comm(c10::make_intrusive<HostBackend>(std::move(made).value()));
      const at::Tensor tensor = at::ones({3});
      if (comm.rank() == sender) {
        ErrorOf([&] {
          comm.Send(tensor, 0, "activations of layer 1");
          comm.Barrier();
        });
      } else if (comm.rank() == 0) {
        error = ErrorOf([&] { comm.Recv(tensor, sender, "activations of layer 2"); });
      } else {
        ErrorOf([&] { comm.Barrier(); });
      }
    });
    EXPECT_THAT(error, HasSubstr("activations of layer 1"));
    EXPECT_THAT(error, HasSubstr("activations of layer 2"));
  }
}

TEST(MessageTest, TagsOfAnExchangeAreCompared) {
  RunRanks(2, [](Communicator& comm) {
    const at::Tensor incoming = at::zeros({4});
    const std::string tag = comm.rank() == 0 ? "ring 0" : "ring 1";
    const std::string exchanged = ErrorOf(
        [&] { comm.SendRecv(at::ones({4}), 1 - comm.rank(), incoming, 1 - comm.rank(), tag); });
    EXPECT_THAT(exchanged, HasSubstr("ring 0"));
    EXPECT_THAT(exchanged, HasSubstr("ring 1"));
  });
}

}  // namespace
}  // namespace ds::comm
