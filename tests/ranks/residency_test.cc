// Plans that gather ahead, keep what is used again and fetch shards from host memory train with the
// bits of the plan that does not.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/comm/communicator.h"
#include "runtime/engine/build_units.h"
#include "runtime/zero/block_quantization.h"
#include "runtime/zero/sharded_model.h"
#include "runtime/zero/sharded_optimizer.h"
#include "tests/ranks/observed_backend.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

struct PassResult {
  std::vector<at::Tensor> gradients;  // this rank's shards of two micro-batches' sum
  std::vector<at::Tensor> weights;    // its shards of the weights behind their update
  std::vector<bool> on_device;        // shards of sharded parameters, behind that
  int gathers_in_forward = 0;         // of the second micro-batch
  int gathers = 0;                    // in that micro-batch
  int gathers_of_update = 0;          // while it is published
  int reductions = 0;                 // in that micro-batch
};

// Notes in the log, if there is one, when a block has been through its forward and its backward.
at::Tensor RunForward(BlockList& model, zero::ShardedModel& sharded, Bundle bundle,
                      std::vector<std::string>* log = nullptr) {
  sharded.BeginForward();
  for (int i = 0; i < model.size(); ++i) {
    sharded.Enter(i);
    if (log != nullptr && bundle.hidden.defined()) {
      bundle.hidden.register_hook(
          [log, i](const at::Tensor&) { log->push_back(fmt::format("B{}", i)); });
    }
    bundle = model.block(i).forward(std::move(bundle));
    if (log != nullptr) log->push_back(fmt::format("F{}", i));
    std::vector<at::Tensor> left = sharded.LeaveForward(i, {bundle.hidden, bundle.loss});
    bundle.hidden = left[0];
    bundle.loss = left[1];
  }
  sharded.EndForward();
  return bundle.loss;
}

// Which of the shards have bytes where the rank computes.
std::vector<bool> ListOnDevice(const zero::ShardedModel& sharded,
                               const std::vector<at::Tensor>& views) {
  std::vector<bool> on_device;
  if (!sharded.context().sharding.parameters) return on_device;
  for (const at::Tensor& view : views) on_device.push_back(view.storage().nbytes() > 0);
  return on_device;
}

struct Passes {
  int stage = 3;
  zero::ResidencyBudgets budgets = {};
  bool rest_on_host = false;
  Precision precision = Precision::kFp32;
  optim::ParameterGrouper groups = optim::OneGroup;
  bool overlap = false;
  // The micro-batches that are said to be the last of the step.
  std::vector<int> last = {};
  TinyShape shape = {};
  std::vector<std::string>* log = nullptr;  // of the second micro-batch: begins, waits, blocks
  bool plus_plus = false;                   // all of ZeRO++, second shards among two ranks
  bool table_reads_backward = true;         // as any block, if it does not say something else
};

PassResult RunPasses(comm::Communicator& host, const Passes& passes) {
  const auto& [stage, budgets, rest_on_host, precision, groups, overlap, last, shape, log_or_none,
               plus_plus, table_reads_backward] = passes;
  std::vector<std::string> others;
  std::vector<std::string>* log = &others;
  const auto note = [&](char what, c10d::OpType op, const at::Tensor& given) {
    const bool gathers = op == c10d::OpType::_ALLGATHER_BASE;
    const std::int64_t whole = given.numel() * (gathers ? host.size() : 1);
    if (op == c10d::OpType::ALLTOALL_BASE) log->push_back(fmt::format("{}a{}", what, whole));
    if (at::isFloatingType(given.scalar_type())) {
      log->push_back(fmt::format("{}{}{}", what, gathers ? 'g' : 'r', whole));
    }
  };
  PassResult result;
  comm::Communicator world(c10::make_intrusive<ObservedBackend>(
      host.backend(),
      [&](c10d::OpType op, const at::Tensor& tensor) {
        const bool gathers = op == c10d::OpType::_ALLGATHER_BASE;
        if (gathers && at::isFloatingType(tensor.scalar_type())) ++result.gathers;
        if (op == c10d::OpType::_REDUCE_SCATTER_BASE) ++result.reductions;
        note('+', op, tensor);
      },
      [&](c10d::OpType op, const at::Tensor& tensor) { note('=', op, tensor); }));
  const TinyRun run{.stage = stage, .accumulation = 2, .precision = precision, .shape = shape};
  device::MemoryLedger ledger;
  zero::SecondaryGroups secondary;
  if (plus_plus && world.size() > 2) {
    const int first = world.rank() / 2 * 2, place = world.rank() % 2;
    secondary.within = &host.Group("within", {first, first + 1});
    secondary.across = &host.Group("across", {place, place + 2});
  }
  const zero::Context context{
      .groups = {.all = &world, .gradients = &world, .shards = &world},
      .mesh = topology::Mesh::Create({.shard = world.size()}, world.size()).value(),
      .ledger = &ledger,
      .sharding = config::ShardingOfStage(stage, world.size()),
      .dtypes = precision::MakeDtypePolicy(TinyConfig(run)),
      .budgets = budgets,
      .secondary = secondary,
      .quantized_weights = plus_plus,
      .quantized_gradients = plus_plus,
      .overlap = overlap,
      .tiers = {.parameters = rest_on_host ? zero::Rest::kHost : zero::Rest::kHere}};
  const auto model = MakeTinyModel(run.shape, run.dtype());
  const auto fill = [&](int index, const std::vector<zero::OwnRange>& own) {
    for (const zero::OwnRange& range : own) {
      model->block(index).InitializeRange(range.name, 7, range.first, range.values);
    }
    return StatusOr<zero::FirstValues>(zero::FirstValues::kSameEverywhere);
  };
  std::vector<zero::ParameterUnit> units = engine::BuildUnits(*model, groups);
  if (plus_plus) engine::RoundMatrices(&units);
  units[0].backward_reads = table_reads_backward;
  const auto sharded = zero::ShardedModel::Create(context, units, fill).value();
  zero::ShardedOptimizer optimizer(*sharded, TinyConfig(run).optimizer);
  std::vector<at::Tensor> views;
  for (const auto& unit : sharded->units()) {
    for (const auto& bucket : unit->buckets()) {
      views.push_back(bucket->parameters().AcquireShard().tensor());
      bucket->parameters().Stow();
    }
  }
  for (int i = 0; i < 2; ++i) {
    result.gathers = result.reductions = 0;
    const bool is_last = std::find(last.begin(), last.end(), i) != last.end();
    sharded->EndGradients(is_last ? zero::GradientEnd::kLast : zero::GradientEnd::kAsSharded);
    if (i == 1 && log_or_none != nullptr) log = log_or_none;
    const at::Tensor loss = RunForward(*model, *sharded, TinyBatch(run, world, i), log);
    result.gathers_in_forward = result.gathers;
    loss.backward();
    sharded->EndBackward();
  }
  log = &others;
  const int gathers = result.gathers, reductions = result.reductions;
  optimizer.ReduceGradients(/*step=*/1);
  for (const auto& unit : sharded->units()) {
    for (const auto& bucket : unit->buckets()) {
      if (!bucket->trainable()) continue;
      result.gradients.push_back(bucket->gradients().shard().tensor().clone());
    }
  }
  result.gathers = 0;
  optimizer.Step({.lr = 0.1, .gradient_scale = 1.0, .step = 1});
  result.gathers_of_update = result.gathers;
  RunForward(*model, *sharded, TinyBatch(run, world, 0));
  sharded->ReleaseAll();
  result.gathers = gathers;
  result.reductions = reductions;
  result.on_device = ListOnDevice(*sharded, views);
  std::vector<checkpoint::TensorShard> shards;
  optimizer.AddShards(&shards);
  for (const auto& shard : shards) {
    result.weights.push_back(checkpoint::ReadAll(*shard.source).value());
  }
  return result;
}

void ExpectSameBits(const PassResult& a, const PassResult& b) {
  for (const auto member : {&PassResult::gradients, &PassResult::weights}) {
    ASSERT_EQ((a.*member).size(), (b.*member).size());
    for (std::size_t i = 0; i < (a.*member).size(); ++i) {
      EXPECT_TRUE((a.*member)[i].equal((b.*member)[i])) << i;
    }
  }
}

TEST(Residency, GathersAheadWithTheSameBits) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const PassResult plain = RunPasses(world, {});
    constexpr std::int64_t kAll = 1 << 20;
    const std::vector<zero::ResidencyBudgets> budgets = {
        {.prefetch_bytes = 600},
        {.prefetch_bytes = kAll},
        {.prefetch_bytes = kAll, .max_live_bytes = 3000}};
    for (const zero::ResidencyBudgets& each : budgets) {
      const PassResult ahead = RunPasses(world, {.budgets = each});
      ExpectSameBits(ahead, plain);
      EXPECT_LE(ahead.gathers, plain.gathers);
    }
    // Two buckets in each layer, one of them frozen, one in the embedding, which the head reads
    // again, and in the head. The backward pass finds the last unit present.
    EXPECT_EQ(plain.gathers_in_forward, 1 + 3 * 2 + 2);
    EXPECT_EQ(plain.gathers - plain.gathers_in_forward, 3 * 2 + 1);
    const PassResult all = RunPasses(world, {.budgets = budgets[1]});
    EXPECT_EQ(all.gathers_in_forward, 1 + 3 * 2 + 1) << "the head finds the embedding kept";
    EXPECT_LT(all.gathers, plain.gathers);
  });
}

TEST(Residency, GathersNothingForABackwardThatReadsNoParameters) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const bool overlap : {false, true}) {
      const PassResult plain = RunPasses(world, {.overlap = overlap});
      const PassResult without =
          RunPasses(world, {.overlap = overlap, .table_reads_backward = false});
      ExpectSameBits(without, plain);
      EXPECT_EQ(without.gathers_in_forward, plain.gathers_in_forward);
      EXPECT_EQ(without.gathers, plain.gathers - 1);
    }
  });
}

TEST(Residency, KeepsWhatTheBackwardPassUsesAgain) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const PassResult plain = RunPasses(world, {});
    const PassResult kept = RunPasses(world, {.budgets = {.reuse_bytes = 1 << 20}});
    ExpectSameBits(kept, plain);
    EXPECT_EQ(kept.gathers, kept.gathers_in_forward) << "all of it is there for the backward";
    EXPECT_LT(kept.gathers_in_forward, plain.gathers_in_forward);
  });
}

TEST(Residency, WhatIsSmallIsGatheredOnceAndThenWithEachUpdate) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const PassResult plain = RunPasses(world, {});
    // The largest parameter of a layer has 25 elements, the embedding 55, the head's own 5.
    const PassResult layers = RunPasses(world, {.budgets = {.persistent_parameter_bytes = 25 * 4}});
    ExpectSameBits(layers, plain);
    EXPECT_EQ(layers.gathers_in_forward, 2) << "the embedding, for itself and for the head";
    EXPECT_EQ(layers.gathers, layers.gathers_in_forward + 1) << "and for the first backward";
    EXPECT_EQ(layers.gathers_of_update, 3 + 1) << "what is trained of the layers, the head";
    EXPECT_EQ(plain.gathers_of_update, 0);
    const PassResult head = RunPasses(
        world, {.budgets = {.persistent_parameter_bytes = 25 * 4, .persistent_bytes = 128 * 4}});
    ExpectSameBits(head, plain);
    EXPECT_EQ(head.gathers_of_update, 1) << "no layer, of 256 elements with what is frozen";
  });
}

TEST(Residency, FetchesShardsThatRestOnTheHost) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      const PassResult plain = RunPasses(world, {.precision = precision});
      EXPECT_THAT(plain.on_device, ::testing::Each(true));
      const std::vector<zero::ResidencyBudgets> budgets = {
          {},
          {.fetch_bytes = 300},
          {.prefetch_bytes = 600, .reuse_bytes = 900, .fetch_bytes = 1 << 20}};
      for (const zero::ResidencyBudgets& each : budgets) {
        const PassResult fetched =
            RunPasses(world, {.budgets = each, .rest_on_host = true, .precision = precision});
        ExpectSameBits(fetched, plain);
        EXPECT_THAT(fetched.on_device, ::testing::Each(false)) << "they are where they rest";
      }
    }
    EXPECT_TRUE(RunPasses(world, {.stage = 2, .rest_on_host = true}).on_device.empty());
  });
}

TEST(Residency, MovesABucketByOneCallWhateverParameterGroupsItHas) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const PassResult one = RunPasses(world, {});
    const PassResult three = RunPasses(
        world, {.groups = [](int, const std::string& name, const at::Tensor&) {
          return optim::ParameterGroup{.weight_decay_factor = name.ends_with('w')   ? 0.5
                                                              : name.ends_with('b') ? 0.0
                                                                                    : 1.0};
        }});
    EXPECT_EQ(three.gathers_in_forward, one.gathers_in_forward);
    EXPECT_EQ(three.gathers, one.gathers);
    // The trained bucket of each layer, the embedding and the head.
    EXPECT_EQ(one.reductions, 3 + 2);
    EXPECT_EQ(three.reductions, one.reductions);
  });
}

// What is begun, what is waited for, and where between them blocks compute; of the embedding (E),
// layers (L) with their frozen vectors (s), and the head (h).
std::string Describe(const std::vector<std::string>& log) {
  std::string text;
  for (const std::string& event : log) {
    std::string word = event;
    for (const auto& [size, name] :
         {std::pair<std::string, std::string>{"8064", "E"}, {"1792", "L"}, {"128", "s"}}) {
      if (word.ends_with(size)) word.replace(word.size() - size.size(), size.size(), name);
    }
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

TEST(Residency, GathersAndReducesBesideTheComputation) {
  const TinyShape shape{.vocabulary = 200, .width = 40, .layers = 2};
  testing::RunRanks(2, [&](comm::Communicator& world) {
    std::vector<std::string> log;
    RunPasses(world, {.budgets = {.prefetch_bytes = 4 * (1792 + 128), .reduce_bytes = 0},
                      .overlap = true,
                      .shape = shape,
                      .log = &log});
    EXPECT_EQ(Describe(log),
              "+gE +gL +gs =gE F0 +gL +gs =gL =gs F1 =gL =gs F2 +gE +gs =gE =gs F3 "
              "+gL +gs B3 +gL +gs +rs =gL =gs B2 =rs +rL =gL =gs B1 =rL +gE +rL =gE =rL +rE =rE");
  });
}

TEST(Residency, TrainsWithTheSameBitsBesideTheComputation) {
  using zero::ResidencyBudgets;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(stage);
      for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
        const PassResult plain = RunPasses(world, {.stage = stage, .precision = precision});
        const std::vector<ResidencyBudgets> budgets = {
            {},
            {.prefetch_bytes = ResidencyBudgets::kLargestPlace,
             .reduce_bytes = ResidencyBudgets::kLargestPlace},
            {.prefetch_bytes = 1 << 20, .reuse_bytes = 1 << 20, .reduce_bytes = 1 << 20},
            {.prefetch_bytes = 600, .persistent_parameter_bytes = 25 * 4}};
        for (const ResidencyBudgets& each : budgets) {
          ExpectSameBits(RunPasses(world, {.stage = stage,
                                           .budgets = each,
                                           .precision = precision,
                                           .overlap = true,
                                           .last = {1}}),
                         plain);
        }
      }
    }
    ExpectSameBits(RunPasses(world, {.rest_on_host = true, .overlap = true}), RunPasses(world, {}));
  });
}

TEST(Residency, SendsRoundedValuesBesideTheComputationWithTheSameBits) {
  testing::RunRanks(4, [&](comm::Communicator& world) {
    const PassResult plain = RunPasses(world, {.plus_plus = true});
    for (const std::int64_t prefetch : {std::int64_t{0}, zero::ResidencyBudgets::kLargestPlace}) {
      ExpectSameBits(
          RunPasses(world,
                    {.budgets = {.prefetch_bytes = prefetch}, .overlap = true, .plus_plus = true}),
          plain);
    }
  });
}

// Gradients that travel in 4 bits, of the embedding (E) and two layers (L): each is on its way
// while the block before computes.
TEST(Residency, ExchangesRoundedGradientsBesideTheComputation) {
  const TinyShape shape{.vocabulary = 200, .width = 40, .layers = 2};
  testing::RunRanks(2, [&](comm::Communicator& world) {
    std::vector<std::string> log;
    RunPasses(world, {.budgets = {.reduce_bytes = 0},
                      .overlap = true,
                      .shape = shape,
                      .log = &log,
                      .plus_plus = true});
    std::erase_if(log, [](const std::string& event) {
      return event[0] != 'B' && event[1] != 'a';  // what is not rounded
    });
    const auto bytes_of = [](std::int64_t shard) {  // with padding to whole blocks
      return std::to_string(2 * zero::CountQuantizedBytes(shard, zero::QuantizedBits::k4));
    };
    const std::string layer = "a" + bytes_of(2048), table = "a" + bytes_of(4096);
    EXPECT_THAT(log, ::testing::ElementsAre("B3", "B2", "+" + layer, "B1", "=" + layer, "+" + layer,
                                            "=" + layer, "+" + table, "=" + table));
  });
}

// A mean to which gradients are added, and which is reduced again, is the mean of all.
TEST(Residency, AMicroBatchMayFollowTheOneThatWasToBeTheLast) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    for (const int stage : {0, 1, 2}) {
      SCOPED_TRACE(stage);
      const PassResult plain = RunPasses(world, {.stage = stage});
      const PassResult twice = RunPasses(world, {.stage = stage, .overlap = true, .last = {0, 1}});
      ASSERT_EQ(plain.gradients.size(), twice.gradients.size());
      for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
        EXPECT_TRUE(twice.gradients[i].allclose(plain.gradients[i], 0, 1e-6)) << i;
      }
    }
  });
}

TEST(Residency, GathersNothingThatIsNotSharded) {
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const Passes passes{.stage = 2, .budgets = {.prefetch_bytes = 1 << 20, .max_live_bytes = 1}};
    EXPECT_EQ(RunPasses(world, passes).gathers, 0);
  });
}

}  // namespace
}  // namespace ds::tests
