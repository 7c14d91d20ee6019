// ZeRO++: weights that are gathered from near or in 8 bits, gradients that travel in 4.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/engine/tensor_access.h"
#include "runtime/zero/exchange/quantized_reduction.h"
#include "runtime/zero/exchange/shard_gather.h"
#include "runtime/zero/storage/block_quantization.h"
#include "tests/ranks/observed_backend.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using comm::Communicator;
using comm::ReduceOp;
using zero::QuantizedBits;

std::vector<int> Neighbours(int rank, int size) {
  std::vector<int> members;
  for (int i = 0; i < size; ++i) members.push_back(rank / size * size + i);
  return members;
}

std::vector<int> SamePlaces(int rank, int size, int ranks) {
  std::vector<int> members;
  for (int i = rank % size; i < ranks; i += size) members.push_back(i);
  return members;
}

// All ranks share the state; groups of `near` neighbours are its secondary groups.
zero::Context MakeContext(Communicator& world, int near, device::MemoryLedger* ledger) {
  zero::Context context{.groups = {.all = &world, .shards = &world}, .ledger = ledger};
  if (near == 1) return context;
  context.secondary.within = &world.Group("near", Neighbours(world.rank(), near));
  context.secondary.across = &world.Group("far", SamePlaces(world.rank(), near, world.size()));
  return context;
}

// Counts what this rank gives to gathers.
struct Observed {
  explicit Observed(Communicator& below)
      : group(c10::make_intrusive<ObservedBackend>(
            below.backend(), [this](c10d::OpType op, const at::Tensor& tensor) {
              if (op != c10d::OpType::_ALLGATHER_BASE) return;
              ++gathers;
              bytes += static_cast<std::int64_t>(tensor.nbytes());
            })) {}

  int gathers = 0;
  std::int64_t bytes = 0;
  Communicator group;
};

// Different on every rank.
at::Tensor ShardOf(int rank, std::int64_t count) {
  return at::randn({count}, at::make_generator<at::CPUGeneratorImpl>(100 + rank));
}

at::Tensor FullOf(int ranks, std::int64_t count) {
  at::Tensor full = at::empty({ranks * count});
  for (int rank = 0; rank < ranks; ++rank)
    full.narrow(0, rank * count, count).copy_(ShardOf(rank, count));
  return full;
}

at::Tensor ThereAndBack(const at::Tensor& values) {
  const at::Tensor bytes =
      at::empty({zero::CountQuantizedBytes(values.numel(), QuantizedBits::k8)}, at::kByte);
  zero::Quantize(values, QuantizedBits::k8, bytes);
  at::Tensor back = at::empty_like(values);
  zero::Dequantize(bytes, QuantizedBits::k8, back);
  return back;
}

TEST(ShardGather, GoesFarOnceAfterAnUpdate) {
  constexpr std::int64_t kCount = 64;
  testing::RunRanks(4, [&](Communicator& world) {
    Observed all(world), near(world.Group("near", Neighbours(world.rank(), 2)));
    device::MemoryLedger ledger;
    const zero::Context context{.groups = {.all = &world, .shards = &all.group},
                                .ledger = &ledger,
                                .secondary = {.within = &near.group}};
    zero::ShardGather gather(context, zero::ShardGather::Form::kExact);
    const at::Tensor shard = ShardOf(world.rank(), kCount);
    for (int update = 1; update <= 2; ++update) {
      for (int i = 0; i < 3; ++i) {
        const at::Tensor full = at::zeros({4 * kCount});
        gather.Begin(full, zero::Lease(shard), "weights", /*exactly=*/false);
        EXPECT_TRUE(full.equal(FullOf(4, kCount) + (update - 1)));
      }
      EXPECT_EQ(all.gathers, update);
      EXPECT_EQ(near.gathers, 2 * update);
      shard.add_(1);
      gather.ForgetSecondary();
    }
  });
}

TEST(ShardGather, EveryRankGetsTheSameRoundedWeights) {
  constexpr std::int64_t kCount = 5000 * 8;
  testing::RunRanks(3, [&](Communicator& world) {
    Observed all(world);
    device::MemoryLedger ledger;
    const zero::Context context{.groups = {.all = &world, .shards = &all.group}, .ledger = &ledger};
    zero::ShardGather gather(context, zero::ShardGather::Form::kQuantized);
    const at::Tensor shard = ShardOf(world.rank(), kCount);
    const at::Tensor full = at::zeros({3 * kCount});
    gather.Begin(full, zero::Lease(shard), "weights", /*exactly=*/false);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(full.narrow(0, rank * kCount, kCount).equal(ThereAndBack(ShardOf(rank, kCount))));
    }
    EXPECT_EQ(all.bytes, zero::CountQuantizedBytes(kCount, QuantizedBits::k8));
    EXPECT_LT(all.bytes, static_cast<std::int64_t>(shard.nbytes()) * 26 / 100);
    gather.Begin(full, zero::Lease(shard), "weights", /*exactly=*/true);
    EXPECT_TRUE(full.equal(FullOf(3, kCount)));
  });
}

// Each time a value travels it is off by at most a step, the largest of its block over 8.
TEST(QuantizedReduction, IsWithinTheStepsOfItsTerms) {
  constexpr std::int64_t kCount = 3000 * 8;
  for (const int near : {1, 2, 3}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      testing::RunRanks(6, [&](Communicator& world) {
        device::MemoryLedger ledger;
        const zero::Context context = MakeContext(world, near, &ledger);
        at::Tensor exact = at::zeros({6 * kCount}, at::kDouble);
        double terms = 0.0;
        for (int rank = 0; rank < 6; ++rank) {
          const at::Tensor given = ShardOf(rank, 6 * kCount);
          exact.add_(given);
          terms += given.abs().max().item<double>() / 8;
        }
        const double divisor = op == ReduceOp::kAvg ? 6.0 : 1.0;
        // Sums of a group, which are quantised again, are not larger than all their terms.
        const double bound = (near > 1 ? 10.0 : 1.0) * terms / divisor;
        const at::Tensor part = at::empty({kCount});
        zero::QuantizedReduction({part, ShardOf(world.rank(), 6 * kCount), op}, context).Await();
        const at::Tensor error =
            part.to(at::kDouble) - exact.narrow(0, world.rank() * kCount, kCount) / divisor;
        EXPECT_LT(error.abs().max().item<double>(), bound);
        EXPECT_LT(error.square().mean().sqrt().item<double>() * divisor, 1.3)
            << "six terms off by m/16/sqrt(3) each, m about 4; twice";
        EXPECT_LT(std::abs(error.mean().item<double>()) * divisor, 0.05) << "rounded both ways";
      });
    }
  }
}

// The same values again and again: what one time loses comes later, so that the mean is right.
TEST(LossFeedback, AddsLostRoundingErrorsLater) {
  constexpr std::int64_t kCount = 512;
  constexpr int kTimes = 60;
  for (const int near : {1, 2}) {
    testing::RunRanks(4, [&](Communicator& world) {
      device::MemoryLedger ledger;
      const zero::Context context = MakeContext(world, near, &ledger);
      at::Tensor exact = at::zeros({4 * kCount});
      for (int rank = 0; rank < 4; ++rank) exact.add_(ShardOf(rank, 4 * kCount));
      const config::LocoConfig loco{.err_beta = 0.5, .reset_every = 10 * kTimes};
      zero::LossFeedbacks feedbacks{.first = {context, loco}, .second = {context, loco}};
      const auto mean_error = [&](zero::LossFeedbacks* with) {
        at::Tensor sum = at::zeros({kCount});
        const at::Tensor part = at::empty({kCount});
        for (int i = 0; i < kTimes; ++i) {
          zero::QuantizedReduction({part, ShardOf(world.rank(), 4 * kCount)}, context, with)
              .Await();
          sum.add_(part);
        }
        const at::Tensor mine = exact.narrow(0, world.rank() * kCount, kCount);
        return (sum / kTimes - mine).square().mean().sqrt().item<double>();
      };
      EXPECT_LT(mean_error(&feedbacks), 0.15 * mean_error(nullptr));
    });
  }
}

TEST(LossFeedback, AnOverflowDoesNotComeAgain) {
  constexpr std::int64_t kCount = 64;
  testing::RunRanks(2, [&](Communicator& world) {
    device::MemoryLedger ledger;
    const zero::Context context = MakeContext(world, 1, &ledger);
    zero::LossFeedbacks feedbacks{.first = {context, {}}, .second = {context, {}}};
    const at::Tensor full = ShardOf(world.rank(), 2 * kCount);
    const at::Tensor part = at::empty({kCount});
    const auto reduce = [&] {
      zero::QuantizedReduction({part, full}, context, &feedbacks).Await();
      return part.isfinite().all().item<bool>();
    };
    EXPECT_TRUE(reduce());
    const at::Tensor sound = full.clone();
    full.fill_(HUGE_VAL);
    EXPECT_FALSE(reduce());
    full.copy_(sound);
    EXPECT_TRUE(reduce());
  });
}

struct RoundedOutcome {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> exported;
  std::map<std::string, at::Tensor> kept;  // the fp32 weights
  std::int64_t peak_of_buffers = 0;        // of collectives, on rank 0
};

RoundedOutcome TrainRounded(const TinyRun& run, int world_size) {
  RoundedOutcome outcome;
  testing::RunRanks(world_size, [&](Communicator& world) {
    device::MemoryLedger ledger;
    const auto engine = MakeTinyEngine(run, world, &ledger);
    auto steps = TrainTiny(*engine, run, 4);
    auto exported = ExportAll(*engine);
    const auto kept = TensorAccess(*engine).GetFullFp32Param("layer.1.w").value();
    if (world.rank() == 0)
      outcome = {std::move(steps),
                 std::move(exported),
                 {{"layer.1.w", kept}},
                 ledger.Peak(device::MemoryUse::kCommBuffers, device::MemoryTier::kHost)};
  });
  return outcome;
}

TEST(ZeroPlusPlus, SecondaryShardsChangeNoBit) {
  for (const auto& [world_size, size] : {std::pair{4, 2}, {6, 3}, {6, 2}}) {
    for (const std::int64_t accumulation : {1, 2}) {
      const TinyRun run{.stage = 3, .accumulation = accumulation};
      TinyRun near = run;
      near.zero.hpz_partition_size = size;
      const RoundedOutcome plain = TrainRounded(run, world_size),
                           got = TrainRounded(near, world_size);
      for (const auto& [name, value] : plain.exported) {
        EXPECT_TRUE(value.equal(got.exported.at(name))) << name;
      }
      for (std::size_t i = 0; i < plain.steps.size(); ++i) {
        EXPECT_EQ(plain.steps[i].loss, got.steps[i].loss);
      }
      // There is a secondary shard of every bucket.
      EXPECT_GT(got.peak_of_buffers, plain.peak_of_buffers + 1000 / size);
    }
  }
}

TEST(ZeroPlusPlus, QuantizedWeightsAreKeptAndSavedExactly) {
  const TinyRun run{.stage = 3};
  TinyRun rounded = run;
  rounded.zero.quantized_weights = true;
  for (const int near : {1, 2}) {
    rounded.zero.hpz_partition_size = near;
    const RoundedOutcome plain = TrainRounded(run, 4), got = TrainRounded(rounded, 4);
    EXPECT_TRUE(got.exported.at("layer.1.w").equal(got.kept.at("layer.1.w")));
    EXPECT_FALSE(got.exported.at("layer.1.w").equal(plain.exported.at("layer.1.w")));
    for (std::size_t i = 0; i < plain.steps.size(); ++i) {
      EXPECT_NEAR(got.steps[i].loss, plain.steps[i].loss, 0.02 * plain.steps[i].loss);
    }
  }
}

// A bias's gradient is a sum over all tokens, so much larger than the elements of a matrix that in
// one block with it these would vanish.
TEST(ZeroPlusPlus, BiasesTravelAsTheyAre) {
  const auto gradients_of = [](bool quantized) {
    std::map<std::string, at::Tensor> gradients;
    testing::RunRanks(4, [&](Communicator& world) {
      TinyRun run{.stage = 3};
      run.zero.quantized_gradients = quantized;
      const auto engine = MakeTinyEngine(run, world);
      RunMicroBatch(*engine, run, 0);
      for (const char* name : {"layer.1.b", "layer.1.w"}) {
        const at::Tensor gradient = TensorAccess(*engine).GetFullGrad(name).value();
        if (world.rank() == 0) gradients[name] = gradient;
      }
    });
    return gradients;
  };
  const auto plain = gradients_of(false), got = gradients_of(true);
  EXPECT_TRUE(got.at("layer.1.b").equal(plain.at("layer.1.b")));
  EXPECT_FALSE(got.at("layer.1.w").equal(plain.at("layer.1.w")));
}

TEST(ZeroPlusPlus, QuantizedGradientsTrain) {
  const TinyRun run{.stage = 3, .accumulation = 2};
  for (const auto& [near, with_loco] : {std::pair{1, false}, {2, false}, {1, true}, {2, true}}) {
    TinyRun rounded = run;
    rounded.zero.quantized_gradients = true;
    rounded.zero.hpz_partition_size = near;
    if (with_loco) rounded.zero.loco.emplace();
    const RoundedOutcome plain = TrainRounded(run, 4), got = TrainRounded(rounded, 4);
    EXPECT_FALSE(got.kept.at("layer.1.w").equal(plain.kept.at("layer.1.w")));
    EXPECT_LT(got.steps.back().loss, got.steps.front().loss);
    for (std::size_t i = 0; i < plain.steps.size(); ++i) {
      EXPECT_NEAR(got.steps[i].loss, plain.steps[i].loss, 0.05 * plain.steps[i].loss);
    }
  }
}

}  // namespace
}  // namespace ds::tests
