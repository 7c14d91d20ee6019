// Passes that visit units in any order and number, against autograd over plain tensors: layers that
// are shared, skipped or run in another order than they were registered in, and recomputation.

#include <ATen/ops/arange.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "runtime/autograd/recompute.h"
#include "runtime/comm/agreement.h"
#include "runtime/zero/optimizer/sharded_optimizer.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr int kUnits = 4;
constexpr std::int64_t kMatrixSize = 8;

std::vector<at::Tensor> MakeWeights() {
  std::vector<at::Tensor> weights;
  for (int unit = 0; unit < kUnits; ++unit) {
    const at::Tensor values =
        at::arange(kMatrixSize * kMatrixSize, at::kFloat).mul(unit + 3).remainder(11);
    weights.push_back(
        values.sub(5).mul(0.05).view({kMatrixSize, kMatrixSize}).clone().set_requires_grad(true));
  }
  return weights;
}

at::Tensor MakeInput(int rank, int micro_batch) {
  const at::Tensor values = at::arange(3 * kMatrixSize, at::kFloat) + (rank * 5 + micro_batch * 7);
  return values.remainder(13).sub(6).mul(0.2).view({3, kMatrixSize});
}

at::Tensor RunLayer(const at::Tensor& x, const at::Tensor& weight) { return x.mm(weight).tanh(); }

// A micro-batch: the units of its forward pass in order; those from `recomputed` on run again in
// the backward pass.
struct MicroBatch {
  std::vector<int> visits;
  std::size_t recomputed = 100;
};

// The mean over ranks of the sum over micro-batches of each weight's gradient.
std::vector<at::Tensor> ReferenceGradients(int ranks,
                                           const std::vector<MicroBatch>& micro_batches) {
  const std::vector<at::Tensor> weights = MakeWeights();
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t m = 0; m < micro_batches.size(); ++m) {
      at::Tensor x = MakeInput(rank, static_cast<int>(m));
      for (const int unit : micro_batches[m].visits) {
        x = RunLayer(x, weights[static_cast<std::size_t>(unit)]);
      }
      x.square().sum().div(ranks).backward();
    }
  }
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& weight : weights) {
    gradients.push_back(weight.grad().defined() ? weight.grad() : at::zeros_like(weight));
  }
  return gradients;
}

struct Visits {
  int stage = 3;
  bool overlap = false;
  zero::ResidencyBudgets budgets = {};
  bool expects_last_path = false;  // each pass is planned as the one before went
};

class VisitedModel {
 public:
  VisitedModel(comm::Communicator& world, const Visits& run)
      : run_(run),
        context_{.groups = {.all = &world, .gradients = &world, .shards = &world},
                 .mesh = topology::Mesh::Create({.shard = world.size()}, world.size()).value(),
                 .ledger = &ledger_,
                 .sharding = config::ShardingOfStage(run.stage, world.size()),
                 .dtypes = precision::MakeDtypePolicy(TinyConfig({})),
                 .budgets = run.budgets,
                 .overlap = run.overlap},
        weights_(MakeWeights()) {
    std::vector<zero::ParameterUnit> units;
    for (int unit = 0; unit < kUnits; ++unit) {
      const std::string name = "layer." + std::to_string(unit);
      zero::NamedParameter parameter{.name = name + ".w",
                                     .tensor = weights_[static_cast<std::size_t>(unit)]};
      parameter.placement.global_shape = {kMatrixSize, kMatrixSize};
      units.push_back({.name = name, .parameters = {parameter}, .also_reads = {}});
    }
    model_ = zero::ShardedModel::Create(context_, units, [](int, const auto&) {
               return StatusOr<zero::FirstValues>(zero::FirstValues::kSameEverywhere);
             }).value();
    optimizer_.emplace(*model_, TinyConfig({}).optimizer);
  }

  void Run(const MicroBatch& micro_batch, int index) {
    const std::vector<int> expected = model_->visits();
    if (run_.expects_last_path && !expected.empty()) {
      model_->BeginForward(expected);
    } else {
      model_->BeginForward();
    }
    at::Tensor x = MakeInput(model_->context().groups.all->rank(), index);
    const auto& visits = micro_batch.visits;
    const std::size_t full = std::min(micro_batch.recomputed, visits.size());
    for (std::size_t i = 0; i < full; ++i) x = Visit(visits[i], x);
    if (full < visits.size()) {
      const std::vector<int> rest(visits.begin() + static_cast<long>(full), visits.end());
      const auto part = [this, rest](activation::Tensors inputs) {
        at::Tensor y = inputs[0];
        for (const int unit : rest) y = Visit(unit, y);
        return activation::Tensors{y};
      };
      x = activation::Recompute(part, {x}, {.trains = true})[0];
    }
    EXPECT_EQ(model_->visits(), visits);
    model_->EndForward();
    x.square().sum().backward();
    model_->EndBackward();
  }

  // This rank's shards of the mean gradients are those of the reference.
  void CheckGradients(const std::vector<at::Tensor>& expected) {
    optimizer_->ReduceGradients(/*step=*/1);
    for (std::size_t unit = 0; unit < kUnits; ++unit) {
      const zero::Bucket& bucket = *model_->units()[unit]->buckets()[0];
      const zero::FlatLayout& layout = bucket.parameters().layout();
      const at::Tensor flat = at::zeros(layout.padded_numel());
      flat.narrow(0, layout.parameter(0).start, kMatrixSize * kMatrixSize)
          .copy_(expected[unit].flatten());
      const zero::FlatRange own = layout.shard(model_->context().groups.all->rank());
      const zero::Lease shard = bucket.gradients().shard();
      EXPECT_TRUE(shard.tensor().allclose(flat.narrow(0, own.start, own.count), 1e-5, 1e-6))
          << "layer " << unit;
    }
  }

  std::uint64_t plan_hash() const { return model_->plan_hash(); }

 private:
  at::Tensor Visit(int unit, const at::Tensor& x) {
    model_->Enter(unit);
    const at::Tensor y = RunLayer(x, weights_[static_cast<std::size_t>(unit)]);
    return model_->LeaveForward(unit, {y})[0];
  }

  const Visits run_;
  device::MemoryLedger ledger_;
  const zero::Context context_;
  const std::vector<at::Tensor> weights_;
  std::unique_ptr<zero::ShardedModel> model_;
  std::optional<zero::ShardedOptimizer> optimizer_;
};

void ExpectReferenceGradients(const std::vector<MicroBatch>& micro_batches) {
  constexpr std::int64_t kAll = 1 << 20;
  std::vector<Visits> runs;
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool overlap : {false, true}) {
      for (const bool expects_last_path : {false, true}) {
        runs.push_back({stage, overlap, {}, expects_last_path});
        runs.push_back({stage,
                        overlap,
                        {.prefetch_bytes = 300, .reuse_bytes = 600, .reduce_bytes = kAll},
                        expects_last_path});
      }
    }
  }
  runs.push_back({3, true, {.persistent_parameter_bytes = kAll}, false});
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const std::vector<at::Tensor> expected = ReferenceGradients(world.size(), micro_batches);
    for (const Visits& run : runs) {
      SCOPED_TRACE(::testing::Message() << "stage " << run.stage << " overlap " << run.overlap
                                        << " prefetch " << run.budgets.prefetch_bytes);
      VisitedModel model(world, run);
      int index = 0;
      for (const MicroBatch& micro_batch : micro_batches) model.Run(micro_batch, index++);
      model.CheckGradients(expected);
      const auto hashes = comm::GatherNumber(static_cast<std::int64_t>(model.plan_hash()), world);
      EXPECT_EQ(hashes[0], hashes[1]);
    }
  });
}

TEST(Visits, OfUnitsInOrder) { ExpectReferenceGradients({{{0, 1, 2, 3}}, {{0, 1, 2, 3}}}); }

TEST(Visits, OfUnitsInReverse) { ExpectReferenceGradients({{{3, 2, 1, 0}}, {{3, 2, 1, 0}}}); }

TEST(Visits, OfSharedUnits) {
  ExpectReferenceGradients({{{0, 1, 0, 1, 1, 3}}, {{0, 1, 0, 1, 1, 3}}, {{2, 2, 2}}});
}

TEST(Visits, OfAnotherPathInEachMicroBatch) {
  ExpectReferenceGradients({{{0, 1, 2}}, {{3, 1}}, {{2, 0, 2, 3, 1}}, {{1}}, {{0, 1, 2, 3}}});
}

TEST(Visits, OfUnitsThatABackwardPassRecomputes) {
  ExpectReferenceGradients({{{0, 1, 2, 3}, 2}, {{0, 1, 2, 3}, 0}, {{3, 0, 3, 1}, 1}, {{0, 1, 2}}});
}

}  // namespace
}  // namespace ds::tests
