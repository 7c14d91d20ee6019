#include "runtime/comm/communicator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/support/rank_harness.h"

namespace ds::comm {
namespace {

using ds::testing::RunRanks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

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
    const at::Tensor full = at::empty({10}, at::kFloat);
    comm.AllGather(full, part);
    EXPECT_TRUE(at::equal(full.narrow(0, 5, 5), at::arange(5, at::kFloat) + 10));
    const at::Tensor reduced = at::empty({5}, at::kFloat);
    comm.ReduceScatter(reduced, full, ReduceOp::kAvg);
    EXPECT_TRUE(at::equal(reduced, part));
  });
}

// Equal in all but what they are about: the error says what each rank's is about.
void ExpectComparesTags(
    const std::function<void(Communicator&, const at::Tensor&, const std::string& tag)>& call) {
  RunRanks(2, [&](Communicator& comm) {
    const at::Tensor tensor = at::ones({4});
    EXPECT_NO_THROW(call(comm, tensor, "layer.7.w"));
    EXPECT_THAT([&] { call(comm, tensor, comm.rank() == 0 ? "layer.0.w" : "layer.1.w"); },
                ThrowsMessage<c10::Error>(AllOf(HasSubstr("layer.0.w"), HasSubstr("layer.1.w"))));
  });
}

TEST(CommunicatorTest, CallsWithOneRootCompareTheirTags) {
  ExpectComparesTags([](Communicator& comm, const at::Tensor& tensor, const std::string& tag) {
    comm.Reduce(tensor, /*root=*/1, ReduceOp::kSum, tag);
  });
  ExpectComparesTags([](Communicator& comm, const at::Tensor& tensor, const std::string& tag) {
    comm.Broadcast(tensor, /*root=*/1, tag);
  });
  ExpectComparesTags([](Communicator& comm, const at::Tensor& tensor, const std::string& tag) {
    std::vector<at::Tensor> parts;
    if (comm.rank() == 0) parts = {at::empty({4}), at::empty({4})};
    comm.Gather(parts, tensor, /*root=*/0, tag);
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
