// Parameters placed over meshes that the engine does not build yet: what ranks hold several times
// counts once in the norm, and is once in a checkpoint. Against brute force over whole tensors.

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/local_world.h"
#include "runtime/plan/mesh/mesh.h"
#include "runtime/zero/optimizer/sharded_optimizer.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::zero {
namespace {

using ds::testing::RunRanks;
using ds::testing::TemporaryFolder;
using ::testing::HasSubstr;
using topology::Axis;

// The group of every rank over the axes, made before the ranks are.
class Groups {
 public:
  Groups(const topology::Mesh& mesh, topology::AxisSet axes)
      : of_rank_(static_cast<std::size_t>(mesh.world_size())) {
    for (int first = 0; first < mesh.world_size(); ++first) {
      if (mesh.MemberOf(first, axes).index != 0) continue;
      const std::vector<int> members = mesh.GroupOf(first, axes);
      auto group = comm::MakeLocalWorld(static_cast<int>(members.size()));
      for (std::size_t i = 0; i < members.size(); ++i) {
        of_rank_[static_cast<std::size_t>(members[i])] = std::move(group[i]);
      }
    }
  }
  comm::Communicator* of(int rank) const { return of_rank_[static_cast<std::size_t>(rank)].get(); }

 private:
  std::vector<std::unique_ptr<comm::Communicator>> of_rank_;
};

// A tensor of the model and the dimension in which tensor parallelism cuts it; none: each rank
// along that axis has all of it.
struct Global {
  std::string name;
  std::vector<std::int64_t> shape;
  int split = -1;
};
const std::vector<Global> kModel = {
    {"columns", {6, 8}, 1}, {"norm", {7}}, {"rows", {10, 3}, 0}, {"bias", {4}, 0}, {"scalar", {}}};

// Small integers, so that sums of squares are exact in any order.
at::Tensor FullOf(const Global& global, int salt) {
  const auto count = checkpoint::ElementCount(global.shape).value();
  return at::arange(count).add(salt).remainder(13).sub(5).to(at::kFloat).reshape(global.shape);
}

at::Tensor LocalOf(const Global& global, const topology::Member& member, const at::Tensor& full) {
  if (global.split < 0) return full.clone();
  return full.chunk(member.count, global.split)[static_cast<std::size_t>(member.index)]
      .contiguous();
}

// All stages of a pipeline hold all of it.
checkpoint::Placement PlacementOf(const Global& global, const topology::Member& member,
                                  int stages) {
  checkpoint::Placement placement{.global_shape = global.shape};
  for (int stage = 0; stages > 1 && stage < stages; ++stage) placement.stages.push_back(stage);
  if (global.split < 0) {
    placement.copy_axes = placement.copy_axes.With(Axis::kTensor);
    return placement;
  }
  const auto dimension = static_cast<std::size_t>(global.split);
  checkpoint::Box box{std::vector<std::int64_t>(global.shape.size(), 0), global.shape};
  box.shape[dimension] /= member.count;
  box.offset[dimension] = member.index * box.shape[dimension];
  placement.boxes = {std::move(box)};
  return placement;
}

struct SplitWorld {
  topology::Degrees degrees;
  int stage = 0;

  topology::Mesh mesh() const {
    const int world =
        degrees.pipeline * degrees.replicate * degrees.shard * degrees.sequence * degrees.tensor;
    return topology::Mesh::Create(degrees, world).value();
  }
  topology::AxisSet shard_axes() const {
    return stage == 0 ? topology::kGradientAxes : topology::kShardAxes;
  }
};

const SplitWorld kSplitWorlds[] = {
    {{.tensor = 2}, 0},
    {{.replicate = 2, .tensor = 2}, 0},
    {{.replicate = 2, .shard = 2, .tensor = 2}, 1},
    {{.replicate = 2, .shard = 2, .tensor = 2}, 2},
    {{.replicate = 2, .shard = 2, .tensor = 2}, 3},
    {{.shard = 2, .sequence = 2, .tensor = 2}, 2},
    {{.replicate = 3, .shard = 2}, 1},
    {{.pipeline = 2}, 0},
    {{.pipeline = 2, .shard = 2}, 1},
    {{.pipeline = 2, .replicate = 2, .shard = 2, .tensor = 2}, 3},
    {{.replicate = 2,
      .shard = 2,
      .tensor = 2,
      .order = {Axis::kTensor, Axis::kShard, Axis::kReplicate, Axis::kSequence, Axis::kPipeline}},
     2},
};

// One rank's engine-less model.
class PlacedModel : public checkpoint::Stateful {
 public:
  PlacedModel(const SplitWorld& split_world, const comm::RankGroups& groups)
      : member_(split_world.mesh().MemberOf(groups.all->rank(), {Axis::kTensor})),
        stages_(split_world.degrees.pipeline) {
    const Context context{
        .groups = groups,
        .mesh = split_world.mesh(),
        .shard_axes = split_world.shard_axes(),
        .ledger = &ledger_,
        .sharding = config::ShardingOfStage(split_world.stage, groups.shards->size())};
    ParameterUnit unit{.name = "all", .parameters = {}, .also_reads = {}};
    for (const Global& global : kModel) {
      const at::Tensor local = LocalOf(global, member_, FullOf(global, /*salt=*/0));
      unit.parameters.push_back({.name = global.name,
                                 .tensor = local.requires_grad_(),
                                 .placement = PlacementOf(global, member_, stages_)});
    }
    const auto fill = [](int, const auto&) {
      return StatusOr<FirstValues>(FirstValues::kSameEverywhere);
    };
    model_ = ShardedModel::Create(context, {std::move(unit)}, fill).value();
    optimizer_ = std::make_unique<ShardedOptimizer>(*model_, config::OptimizerConfig{});
  }

  // Gives every rank the whole gradient's part, so that the mean over ranks is that, and the sum
  // over stages.
  double SumOfSquares(int salt) {
    for (const auto& bucket : model_->units()[0]->buckets()) {
      for (int i = 0; i < bucket->parameters().layout().size(); ++i) {
        const std::string& name = bucket->parameters().parameter(i).name;
        const auto global = std::find_if(kModel.begin(), kModel.end(),
                                         [&](const Global& each) { return each.name == name; });
        bucket->gradients().Add(i, LocalOf(*global, member_, FullOf(*global, salt)) / stages_);
      }
    }
    model_->units()[0]->EndMicroBatch(zero::MicroBatchEnd::kReduce);
    optimizer_->ReduceGradients(/*step=*/1);
    return optimizer_->MeasureShard().Read();
  }

  std::string_view state_name() const override { return "engine"; }
  void AddShards(std::vector<checkpoint::TensorShard>* shards) override {
    optimizer_->AddShards(shards);
  }
  nlohmann::json State() const override { return nlohmann::json::object(); }
  Status LoadState(const nlohmann::json&) override { return OkStatus(); }

 private:
  device::MemoryLedger ledger_;
  const topology::Member member_;  // along the tensor axis
  const int stages_;
  std::unique_ptr<ShardedModel> model_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
};

// Calls `use(model, world)` on every rank of the mesh.
template <typename Use>
void WithPlacedModels(const SplitWorld& split_world, Use use) {
  const topology::Mesh mesh = split_world.mesh();
  const Groups gradients(mesh, topology::kGradientAxes), shards(mesh, split_world.shard_axes());
  RunRanks(mesh.world_size(), [&](comm::Communicator& world) {
    PlacedModel model(split_world, {.all = &world,
                                    .gradients = gradients.of(world.rank()),
                                    .shards = shards.of(world.rank())});
    use(model, world);
  });
}

TEST(Placement, ReplicatedParametersCountOnceInTheNorm) {
  double expected = 0.0;
  for (const Global& global : kModel) {
    expected += FullOf(global, /*salt=*/3).square().sum().item<double>();
  }
  for (const SplitWorld& split_world : kSplitWorlds) {
    SCOPED_TRACE(&split_world - kSplitWorlds);
    std::mutex mutex;
    double sum = 0.0;
    WithPlacedModels(split_world, [&](PlacedModel& model, comm::Communicator&) {
      const double own = model.SumOfSquares(/*salt=*/3);
      const std::lock_guard lock(mutex);
      sum += own;
    });
    EXPECT_DOUBLE_EQ(sum, expected);
  }
}

TEST(Placement, ReplicatedParametersAreSavedOnce) {
  for (const SplitWorld& split_world : kSplitWorlds) {
    SCOPED_TRACE(&split_world - kSplitWorlds);
    const TemporaryFolder folder;
    WithPlacedModels(split_world, [&](PlacedModel& model, comm::Communicator& world) {
      checkpoint::Stateful* const parts[] = {&model};
      const auto saved =
          checkpoint::SaveCheckpoint({.root = folder.path(), .step = 1}, parts, world);
      EXPECT_TRUE(saved.ok()) << saved.status().message();
    });
    // A world of one sees whole tensors.
    WithPlacedModels({}, [&](PlacedModel& model, comm::Communicator& world) {
      std::vector<checkpoint::TensorShard> shards;
      model.AddShards(&shards);
      for (const auto& shard : shards) {
        EXPECT_TRUE(checkpoint::WriteAll(at::zeros({shard.source->count()}), *shard.source).ok());
      }
      checkpoint::Stateful* const parts[] = {&model};
      const Status loaded = checkpoint::LoadCheckpoint(folder.path() / "step-1", parts, world);
      EXPECT_TRUE(loaded.ok()) << loaded.message();
      for (const Global& global : kModel) {
        const auto shard = std::find_if(shards.begin(), shards.end(),
                                        [&](const auto& each) { return each.name == global.name; });
        EXPECT_TRUE(checkpoint::ReadAll(*shard->source)
                        .value()
                        .equal(FullOf(global, /*salt=*/0).reshape({-1})))
            << global.name;
      }
    });
  }
}

TEST(Placement, ThatZeroCannotShardIsRefusedByName) {
  RunRanks(1, [](comm::Communicator& world) {
    device::MemoryLedger ledger;
    const Context context{.groups = {.all = &world, .gradients = &world, .shards = &world},
                          .ledger = &ledger};
    const auto refusal = [&](const checkpoint::Placement& placement) {
      const ParameterUnit unit{
          .name = "all", .parameters = {{"gate", at::zeros({4, 2}), placement}}, .also_reads = {}};
      return ShardedModel::Create(context, {unit}, {}).status().message();
    };
    EXPECT_THAT(refusal({.global_shape = {8, 2}, .expert = true}),
                HasSubstr("parameter gate belongs to an expert"));
    EXPECT_THAT(refusal({.global_shape = {8, 2}}), HasSubstr("not the shape of its placement"));
  });
}

}  // namespace
}  // namespace ds::zero
