#include "tests/ranks/residency_passes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/engine/parameter_units.h"
#include "runtime/zero/optimizer/sharded_optimizer.h"
#include "tests/ranks/observed_backend.h"
#include "tests/support/deferred_copies.h"

namespace ds::tests {
namespace {

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

std::int64_t LeavingBytes(const zero::Context& context) {
  return context.copies ? context.copies->leaving_bytes() : 0;
}

}  // namespace

PassResult RunPasses(comm::Communicator& host, const Passes& passes) {
  const auto& [stage, budgets, offloads_to_host, precision, groups, overlap, last, shape,
               log_or_none, plus_plus, table_reads_backward, publish_elements, updates] = passes;
  std::vector<std::string> others;
  std::vector<std::string>* log = &others;
  const auto note = [&](char what, c10d::OpType op, const at::Tensor& given) {
    const bool gathers = op == c10d::OpType::_ALLGATHER_BASE;
    const std::int64_t full = given.numel() * (gathers ? host.size() : 1);
    if (op == c10d::OpType::ALLTOALL_BASE) log->push_back(fmt::format("{}a{}", what, full));
    if (at::isFloatingType(given.scalar_type())) {
      log->push_back(fmt::format("{}{}{}", what, gathers ? 'g' : 'r', full));
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
      .publish_elements = publish_elements,
      .overlap = overlap,
      .tiers = {.parameters =
                    offloads_to_host ? zero::StorageTier::kHost : zero::StorageTier::kHere,
                .updates_in_backward = updates},
      .copies = offloads_to_host ? std::make_shared<testing::DeferredCopies>(1000) : nullptr};
  const auto model = MakeTinyModel(run.shape, run.dtype());
  const auto fill = [&](int index, const std::vector<zero::OwnRange>& own) {
    for (const zero::OwnRange& range : own) {
      model->block(index).InitializeRange(range.name, 7, range.first, range.values);
    }
    return StatusOr<zero::FirstValues>(zero::FirstValues::kSameEverywhere);
  };
  std::vector<zero::ParameterUnit> units = engine::BuildUnits(*model, groups);
  if (plus_plus) engine::RoundMatrices({.trained = true}, &units);
  units[0].backward_reads = table_reads_backward;
  const auto sharded = zero::ShardedModel::Create(context, units, fill).value();
  zero::ShardedOptimizer optimizer(*sharded, TinyConfig(run).optimizer);
  const auto use = device::MemoryUse::kParameters;
  const std::int64_t resting = ledger.Bytes(use, device::MemoryTier::kHost) - LeavingBytes(context);
  const optim::Update update{.lr = 0.1, .gradient_scale = 1.0, .step = 1};
  for (int i = 0; i < 2; ++i) {
    result.gathers = result.reductions = 0;
    const bool is_last = std::find(last.begin(), last.end(), i) != last.end();
    sharded->EndGradients(updates && i == 1 ? zero::GradientEnd::kUpdate
                          : is_last         ? zero::GradientEnd::kLast
                                            : zero::GradientEnd::kAsSharded);
    optimizer.BeginUpdate(update);
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
      if (!bucket->trainable() || updates) continue;
      result.gradients.push_back(bucket->gradients().shard().tensor().clone());
    }
  }
  result.gathers = 0;
  optimizer.Step(update);
  result.gathers_of_update = result.gathers;
  result.loss = RunForward(*model, *sharded, TinyBatch(run, world, 0)).item<float>();
  sharded->ReleaseAll();
  result.gathers = gathers;
  result.reductions = reductions;
  result.most_fetched_bytes = ledger.Peak(use, device::MemoryTier::kHost) - resting;
  result.fetched_bytes =
      ledger.Bytes(use, device::MemoryTier::kHost) - LeavingBytes(context) - resting;
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

}  // namespace ds::tests
