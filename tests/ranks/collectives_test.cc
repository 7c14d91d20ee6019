// The Communicator and its c10d::Backend against LibTorch's own arithmetic, ranks as threads.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "tests/support/rank_harness.h"

namespace ds::comm {
namespace {

using ds::testing::RunRanks;
using ::testing::HasSubstr;

// Rank r's tensor; any rank can compute any other's.
at::Tensor RankTensor(int rank, at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor values = at::arange(c10::multiply_integers(shape), at::kLong).view(shape);
  values = (values * 37 + rank * 101) % 251;
  if (at::isFloatingType(type)) return (values.to(at::kDouble) / 64 - 1.7).to(type);
  if (type == at::kBool) return values.remainder(3).eq(0);
  return values.remainder(5).to(type);
}

std::vector<at::Tensor> EveryRanks(int size, at::IntArrayRef shape, at::ScalarType type) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < size; ++rank) tensors.push_back(RankTensor(rank, shape, type));
  return tensors;
}

// In rank order, bf16 and fp16 in fp32, rounded once.
at::Tensor Sum(const std::vector<at::Tensor>& tensors) {
  const at::ScalarType type = tensors[0].scalar_type();
  const bool is_half = type == at::kHalf || type == at::kBFloat16;
  at::Tensor sum = is_half ? tensors[0].to(at::kFloat) : tensors[0].clone();
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    sum = type == at::kBool ? sum.logical_or(tensors[i]) : sum + tensors[i];
  }
  return sum.to(type);
}

class CollectivesTest : public ::testing::TestWithParam<std::tuple<int, at::ScalarType>> {
 protected:
  int size() const { return std::get<0>(GetParam()); }
  at::ScalarType type() const { return std::get<1>(GetParam()); }
};

TEST_P(CollectivesTest, AllReduceIsTheSumInRankOrder) {
  RunRanks(size(), [&](Communicator& comm) {
    const at::Tensor tensor = RankTensor(comm.rank(), {37, 3001}, type());
    comm.AllReduce(tensor, ReduceOp::kSum);
    EXPECT_TRUE(at::equal(tensor, Sum(EveryRanks(size(), {37, 3001}, type()))));
  });
}

TEST_P(CollectivesTest, ReduceScatterGivesTheBitsOfAllReduce) {
  RunRanks(size(), [&](Communicator& comm) {
    const at::Tensor full = RankTensor(comm.rank(), {size() * 20011}, type());
    const at::Tensor part = at::empty({20011}, type());
    comm.ReduceScatter(part, full, ReduceOp::kSum);
    comm.AllReduce(full, ReduceOp::kSum);
    EXPECT_TRUE(at::equal(part, full.narrow(0, comm.rank() * 20011, 20011)));
  });
}

TEST_P(CollectivesTest, ReduceScatterThenAllGatherInPlaceIsAllReduce) {
  RunRanks(size(), [&](Communicator& comm) {
    const at::Tensor full = RankTensor(comm.rank(), {size() * 503}, type());
    const at::Tensor mine = full.narrow(0, comm.rank() * 503, 503);
    comm.ReduceScatter(mine, full, ReduceOp::kSum);
    comm.AllGather(full, mine);
    EXPECT_TRUE(at::equal(full, Sum(EveryRanks(size(), {size() * 503}, type()))));
  });
}

TEST_P(CollectivesTest, MovingCollectivesMoveEveryType) {
  RunRanks(size(), [&](Communicator& comm) {
    const int root = size() - 1;
    const std::vector<at::Tensor> all = EveryRanks(size(), {7, 13}, type());
    const at::Tensor mine = all[comm.rank()].clone();

    const at::Tensor shown = mine.clone();
    comm.Broadcast(shown, root);
    EXPECT_TRUE(at::equal(shown, all[root]));

    std::vector<at::Tensor> gathered;
    for (int i = 0; comm.rank() == root && i < size(); ++i)
      gathered.push_back(at::empty_like(mine));
    comm.Gather(gathered, mine, root);
    for (std::size_t i = 0; i < gathered.size(); ++i) EXPECT_TRUE(at::equal(gathered[i], all[i]));

    const at::Tensor back = at::empty_like(mine);
    comm.Scatter(back, gathered, root);
    EXPECT_TRUE(at::equal(back, mine));

    if (size() > 1 && comm.rank() == 0) comm.Send(mine, root);
    if (size() > 1 && comm.rank() == root) {
      comm.Recv(back, 0);
      EXPECT_TRUE(at::equal(back, all[0]));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(SizesAndTypes, CollectivesTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 8),
                                            ::testing::Values(at::kFloat, at::kDouble,
                                                              at::kBFloat16, at::kHalf, at::kChar,
                                                              at::kByte, at::kShort, at::kInt,
                                                              at::kLong, at::kBool)),
                         [](const auto& info) {
                           return std::string(c10::toString(std::get<1>(info.param))) + "On" +
                                  std::to_string(std::get<0>(info.param));
                         });

TEST(CollectivesOptionsTest, AverageDividesTheSumOnce) {
  RunRanks(3, [](Communicator& comm) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor tensor = RankTensor(comm.rank(), {1000}, type);
      const std::vector<at::Tensor> all = EveryRanks(3, {1000}, type);
      comm.AllReduce(tensor, ReduceOp::kAvg);
      const at::Tensor sum = all[0].to(at::kFloat) + all[1].to(at::kFloat) + all[2].to(at::kFloat);
      EXPECT_TRUE(at::equal(tensor, (sum / 3).to(type)));
    }
  });
}

TEST(CollectivesOptionsTest, MaxMinAndProduct) {
  RunRanks(4, [](Communicator& comm) {
    const at::Tensor all = at::stack(EveryRanks(4, {999}, at::kFloat));
    const auto reduced = [&](ReduceOp op) {
      const at::Tensor tensor = RankTensor(comm.rank(), {999}, at::kFloat);
      comm.AllReduce(tensor, op);
      return tensor;
    };
    EXPECT_TRUE(at::equal(reduced(ReduceOp::kMax), std::get<0>(all.max(0))));
    EXPECT_TRUE(at::equal(reduced(ReduceOp::kMin), std::get<0>(all.min(0))));
    EXPECT_TRUE(at::equal(reduced(ReduceOp::kProduct), all[0] * all[1] * all[2] * all[3]));
  });
}

TEST(CollectivesOptionsTest, ReduceLeavesTheOthersAlone) {
  RunRanks(3, [](Communicator& comm) {
    const at::Tensor tensor = RankTensor(comm.rank(), {100}, at::kInt);
    comm.Reduce(tensor, 1, ReduceOp::kSum);
    const std::vector<at::Tensor> all = EveryRanks(3, {100}, at::kInt);
    EXPECT_TRUE(at::equal(tensor, comm.rank() == 1 ? Sum(all) : all[comm.rank()]));
  });
}

// Rank r sends r + 1 rows to every rank.
TEST(CollectivesOptionsTest, AllToAllWithSplits) {
  RunRanks(3, [](Communicator& comm) {
    const std::int64_t mine = comm.rank() + 1;
    const at::Tensor input = at::full({3 * mine, 4}, comm.rank(), at::kFloat);
    const at::Tensor output = at::empty({6, 4}, at::kFloat);
    comm.AllToAll(output, input, {1, 2, 3}, {mine, mine, mine});
    const at::Tensor expected =
        at::tensor({0, 1, 1, 2, 2, 2}, at::kFloat).unsqueeze(1).expand({6, 4});
    EXPECT_TRUE(at::equal(output, expected));
  });
}

TEST(CollectivesOptionsTest, AllToAllOfEqualPartsIsATranspose) {
  RunRanks(4, [](Communicator& comm) {
    const at::Tensor input = at::arange(4, at::kLong) + 10 * comm.rank();
    const at::Tensor output = at::empty({4}, at::kLong);
    comm.AllToAll(output, input);
    EXPECT_TRUE(at::equal(output, at::arange(4, at::kLong) * 10 + comm.rank()));
  });
}

// What other code expects of any c10d::Backend: lists of tensors, and Work to wait for.
TEST(BackendTest, ListFormsEqualTheFlatOnes) {
  RunRanks(2, [](Communicator& comm) {
    c10d::Backend& backend = *comm.backend();
    std::vector<at::Tensor> input = {at::full({5}, comm.rank() + 1.0, at::kFloat)};
    std::vector<std::vector<at::Tensor>> lists = {{at::empty({5}), at::empty({5})}};
    const auto work = backend.allgather(lists, input);
    EXPECT_TRUE(work->wait() && work->isCompleted() && work->isSuccess());
    EXPECT_EQ(lists[0][1].sum().item<float>(), 10);

    std::vector<at::Tensor> output = {at::empty({5})};
    backend.reduce_scatter(output, lists)->wait();
    EXPECT_TRUE(at::equal(output[0], lists[0][comm.rank()] * 2));

    std::vector<at::Tensor> outgoing = {at::full({2}, comm.rank(), at::kInt),
                                        at::full({3}, comm.rank(), at::kInt)};
    std::vector<at::Tensor> incoming = {at::empty({comm.rank() + 2}, at::kInt),
                                        at::empty({comm.rank() + 2}, at::kInt)};
    backend.alltoall(incoming, outgoing)->wait();
    EXPECT_TRUE(at::equal(incoming[1], at::ones({comm.rank() + 2}, at::kInt)));
  });
}

// Misuse is refused before anything is sent, so the group goes on.
TEST(BackendTest, TensorsThatCannotBeSentAreRefused) {
  RunRanks(2, [](Communicator& comm) {
    const auto refuses = [](const std::function<void()>& call, const char* says) {
      try {
        call();
        ADD_FAILURE() << "not refused: " << says;
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what_without_backtrace(), HasSubstr(says));
      }
    };
    const at::Tensor matrix = at::ones({4, 6});
    refuses([&] { comm.AllReduce(matrix.t(), ReduceOp::kSum); }, "contiguous");
    refuses([&] { comm.AllReduce(at::ones({2}, at::kInt), ReduceOp::kAvg); }, "average");
    refuses([&] { comm.AllReduce(at::ones({2}, at::kComplexFloat), ReduceOp::kSum); }, "Complex");
    refuses([&] { comm.AllGather(at::ones({5}), at::ones({2})); }, "not 2 parts of 2");
    refuses([&] { comm.Send(matrix, comm.rank()); }, "to itself");
    refuses([&] { comm.Broadcast(matrix, 2); }, "rank 2 is not in a group of 2");
    comm.AllReduce(matrix, ReduceOp::kSum);
    EXPECT_EQ(matrix.sum().item<float>(), 48);
  });
}

}  // namespace
}  // namespace ds::comm
