#include "runtime/comm/communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/rank_harness.h"

namespace ds::comm {
namespace {

using ds::testing::RunRanks;

TEST(CommunicatorTest, AllReduceSumsInPlace) {
  RunRanks(3, [](Communicator& comm) {
    const at::Tensor tensor = at::full({70000}, comm.rank() + 1, at::kFloat);
    comm.AllReduce(tensor, ReduceOp::kSum);
    EXPECT_TRUE(at::equal(tensor, at::full({70000}, 6, at::kFloat)));
  });
}

TEST(CommunicatorTest, GatherThenScatterGivesBackTheParts) {
  RunRanks(2, [](Communicator& comm) {
    const at::Tensor part = at::arange(5, at::kFloat) + 10 * comm.rank();
    const at::Tensor whole = at::empty({10}, at::kFloat);
    comm.AllGather(whole, part);
    EXPECT_TRUE(at::equal(whole.narrow(0, 5, 5), at::arange(5, at::kFloat) + 10));
    const at::Tensor reduced = at::empty({5}, at::kFloat);
    comm.ReduceScatter(reduced, whole, ReduceOp::kAvg);
    EXPECT_TRUE(at::equal(reduced, part));
  });
}

TEST(CommunicatorTest, ARankThatThrowsEndsTheOthersWaits) {
  EXPECT_THROW(RunRanks(3,
                        [](Communicator& comm) {
                          if (comm.rank() == 1) throw std::invalid_argument("first");
                          comm.Barrier();
                        }),
               std::invalid_argument);
}

}  // namespace
}  // namespace ds::comm
