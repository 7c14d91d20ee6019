// CUDA's flat updates without a GPU: the loop that a launch runs, on the host.

#include "runtime/optim/kernels/flat_update.h"

#include <gtest/gtest.h>

#include "tests/unit/optim/emulated_launch.h"
#include "tests/unit/optim/flat_cases.h"

namespace ds::optim {
namespace {

bool SameMemory(const FlatBuffers& a, const FlatBuffers& b) {
  bool same = true;
  for (std::size_t i = 0; i < a.full.size(); ++i) same = same && a.full[i].equal(b.full[i]);
  return same;
}

void PutBack(const OptimizerSlice& from, const OptimizerSlice& to) {
  to.parameter.copy_(from.parameter);
  to.gradient.copy_(from.gradient);
  for (std::size_t i = 0; i < to.state.size(); ++i) to.state[i].copy_(from.state[i]);
  to.published.copy_(from.published);
}

// Whatever the alignment and the length; what lies beside the views stays as it was.
TEST(FlatUpdate, UpdatesEveryElementOnceAndNothingElse) {
  for (const FlatCase& each : EveryCase()) {
    for (const FlatOp& op : EveryOp()) {
      const FlatBuffers before = MakeBuffers(each);
      const FlatBuffers strided = CopyTo(before, each, at::kCPU);
      const FlatBuffers one_by_one = CopyTo(before, each, at::kCPU);
      UpdateBy(&EmulatedUpdate, op, strided.slice);
      UpdateBy(&OneByOneUpdate, op, one_by_one.slice);
      EXPECT_TRUE(SameMemory(strided, one_by_one)) << NameOf(op) << ": " << each.Name();
      PutBack(before.slice, strided.slice);
      EXPECT_TRUE(SameMemory(strided, before)) << NameOf(op) << ": " << each.Name();
    }
  }
}

TEST(FlatUpdate, MatchesTheCpuKernels) {
  const FlatCase each{.count = 5003};
  for (const FlatOp& op : EveryOp()) {
    const FlatBuffers before = MakeBuffers(each);
    const FlatBuffers launched = CopyTo(before, each, at::kCPU);
    const FlatBuffers kernels = CopyTo(before, each, at::kCPU);
    UpdateBy(&EmulatedUpdate, op, launched.slice);
    UpdateBy(nullptr, op, kernels.slice);
    EXPECT_FALSE(SameMemory(launched, before)) << NameOf(op);
    for (std::size_t i = 0; i < launched.full.size(); ++i) {
      EXPECT_LE(Deviation(launched.full[i], kernels.full[i]),
                Tolerance(launched.full[i].scalar_type()))
          << NameOf(op) << ", view " << i;
    }
  }
}

// As if gradient and state had been fp32, and the results rounded behind it.
TEST(FlatUpdate, WidensInRegistersAndRoundsOnce) {
  for (const at::ScalarType narrow : {at::kBFloat16, at::kHalf}) {
    const FlatCase each{.gradient = narrow, .state = narrow, .published = narrow};
    const FlatCase wide{.published = narrow};
    for (const FlatOp& op : EveryOp()) {
      const FlatBuffers ours = MakeBuffers(each);
      FlatBuffers theirs = CopyTo(ours, each, at::kCPU);
      for (std::size_t i = 1; i < 4; ++i) theirs.full[i] = theirs.full[i].to(at::kFloat);
      theirs.slice = CopyTo(theirs, wide, at::kCPU).slice;
      UpdateBy(&EmulatedUpdate, op, ours.slice);
      UpdateBy(&EmulatedUpdate, op, theirs.slice);
      EXPECT_TRUE(ours.slice.parameter.equal(theirs.slice.parameter)) << NameOf(op);
      EXPECT_TRUE(ours.slice.published.equal(theirs.slice.published)) << NameOf(op);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(ours.slice.state[i].equal(theirs.slice.state[i].to(narrow))) << NameOf(op);
      }
    }
  }
}

TEST(FlatUpdate, MayPublishIntoTheGradient) {
  const FlatCase each{.count = 1003, .offset = 3, .gradient = at::kBFloat16};
  for (const FlatOp& op : EveryOp()) {
    const FlatBuffers apart = MakeBuffers(each);
    FlatBuffers together = CopyTo(apart, each, at::kCPU);
    together.slice.published = together.slice.gradient;
    const FlatBuffers before = CopyTo(apart, each, at::kCPU);
    UpdateBy(&EmulatedUpdate, op, apart.slice);
    UpdateBy(&EmulatedUpdate, op, together.slice);
    EXPECT_TRUE(apart.slice.parameter.equal(together.slice.parameter)) << NameOf(op);
    const bool publishes = !apart.slice.published.equal(before.slice.published);
    EXPECT_TRUE(
        together.slice.gradient.equal(publishes ? apart.slice.published : before.slice.gradient))
        << NameOf(op);
  }
}

// By the launch and by the CPU's kernels: as if the op had come with that scale, or not at all.
TEST(FlatUpdate, FollowsTheDecisionOnTheDevice) {
  for (const at::ScalarType parameter : {at::kFloat, at::kBFloat16}) {
    const FlatCase each{.count = 1003, .offset = 3, .parameter = parameter};
    for (const FlatUpdate launch : {FlatUpdate{&EmulatedUpdate}, FlatUpdate{nullptr}}) {
      const FlatBuffers before = MakeBuffers(each);
      const auto update = [&](double scale, const UpdateDecision* decision) {
        FlatBuffers buffers = CopyTo(before, each, at::kCPU);
        buffers.slice.launch = launch;
        UpdateSlice(MakeOp(config::AdamConfig{}, {.lr = 0.1, .gradient_scale = scale}),
                    buffers.slice, decision);
        return buffers;
      };
      const UpdateDecision applies{.gradient_scale = 0.37F}, skips{.applies = 0.0F};
      EXPECT_TRUE(SameMemory(update(1.0, &applies), update(0.37, nullptr)));
      EXPECT_FALSE(SameMemory(update(1.0, &applies), update(1.0, nullptr)));
      EXPECT_TRUE(SameMemory(update(1.0, &skips), before));
    }
  }
}

TEST(FlatPlan, TakesFoursWhereTheViewsAreAlike) {
  alignas(16) static float buffer[64];
  FlatViews views{.parameter = {buffer + 3}, .gradient = {buffer + 7}, .count = 50};
  views.state[0] = views.state[1] = {buffer + 11};
  EXPECT_EQ(PlanOf<AdamOp>(views).head, 1);
  EXPECT_EQ(PlanOf<AdamOp>(views).fours, 12);
  EXPECT_EQ(ThreadsFor(PlanOf<AdamOp>(views), views.count), 12);
  views.gradient.data = buffer + 8;
  EXPECT_EQ(PlanOf<AdamOp>(views).fours, 0);
  EXPECT_EQ(ThreadsFor(PlanOf<AdamOp>(views), views.count), 50);
  // Where the gradient is no part of it, it does not matter.
  EXPECT_EQ(PlanOf<StepAlongOp>(views).fours, 12);
  // Half as many bytes, the same elements.
  views.gradient = {reinterpret_cast<std::uint16_t*>(buffer) + 7, FlatType::kHalf};
  EXPECT_EQ(PlanOf<AdamOp>(views).fours, 12);
  views.count = 1;
  EXPECT_EQ(PlanOf<AdamOp>(views).head, 1);
  EXPECT_EQ(PlanOf<AdamOp>(views).fours, 0);
}

}  // namespace
}  // namespace ds::optim
