// Every call of a group of one rank on NCCL ends, and leaves what a group of one leaves.

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/comm/join_job.h"
#include "tests/gpu/on_gpu.h"

namespace ds::comm {
namespace {

class GpuCollectives : public ds::testing::OnGpu<::testing::Test> {
 protected:
  static at::Tensor Values() {
    return at::arange(12, at::TensorOptions(at::kFloat).device(Opened()->device));
  }
};

TEST_F(GpuCollectives, OfOneRankLeaveItsOwnValues) {
  const auto world = ConnectWorld({.job_id = "gpu-collectives"}, *Opened());
  ASSERT_TRUE(world.ok()) << world.status().message();
  Communicator& group = **world;
  const at::Tensor in_place = Values();
  group.AllReduce(in_place, ReduceOp::kSum);
  group.Broadcast(in_place, 0);
  group.Reduce(in_place, 0, ReduceOp::kSum);
  group.AllReduceMany({in_place}, ReduceOp::kSum);
  EXPECT_TRUE(in_place.equal(Values()));
  using Call = std::function<void(const at::Tensor& output, const at::Tensor& input)>;
  const Call calls[] = {
      [&](auto& output, auto& input) { group.AllGather(output, input); },
      [&](auto& output, auto& input) { group.ReduceScatter(output, input, ReduceOp::kSum); },
      [&](auto& output, auto& input) { group.AllGatherMany({output}, {input}); },
      [&](auto& output, auto& input) {
        group.ReduceScatterMany({output}, {input}, ReduceOp::kSum);
      },
      [&](auto& output, auto& input) { group.Gather({output}, input, 0); },
      [&](auto& output, auto& input) { group.Scatter(output, {input}, 0); },
      [&](auto& output, auto& input) { group.AllToAll(output, input, {}, {}); },
      [&](auto& output, auto& input) { group.AllGatherAsync(output, input).wait(); },
  };
  for (const Call& call : calls) {
    const at::Tensor output = at::zeros_like(in_place);
    call(output, in_place);
    EXPECT_TRUE(output.equal(in_place)) << "call " << &call - calls;
  }
  group.Barrier();
}

}  // namespace
}  // namespace ds::comm
