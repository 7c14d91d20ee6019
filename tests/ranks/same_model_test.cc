// Ranks that do not have the same model, or call for different parts of it, hear of it.

#include "runtime/zero/same_model.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/engine/gathered_parameters.h"
#include "runtime/engine/tensor_access.h"
#include "runtime/zero/exchange/quantized_reduction.h"
#include "runtime/zero/exchange/sparse_rows.h"
#include "runtime/zero/sharded_model.h"
#include "tests/ranks/device_world.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Two ranks do the same with different layers of equal size, which together would be neither's.
void ExpectNotMixed(const std::function<void(comm::Communicator&, const std::string&)>& body) {
  std::string message = "nothing has been thrown";
  try {
    testing::RunRanks(2, [&](comm::Communicator& world) {
      body(world, world.rank() == 0 ? "layer.0.w" : "layer.1.w");
    });
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  }
  EXPECT_THAT(message, AllOf(HasSubstr("the ranks disagree"), HasSubstr("for layer.0.w"),
                             HasSubstr("for layer.1.w")));
}

TEST(Collectives, OfDifferentLayersAreNotMixed) {
  ExpectNotMixed([](comm::Communicator& world, const std::string& layer) {
    const auto engine = MakeTinyEngine({.stage = 3}, world);
    EXPECT_TRUE(WithGatheredParameters(*engine, {layer}, {}, [] { return OkStatus(); }).ok());
  });
  ExpectNotMixed([](comm::Communicator& world, const std::string& layer) {
    const auto engine = MakeTinyEngine({.stage = 1}, world);
    TensorAccess(*engine).GetFullFp32Param(layer).value();
  });
}

TEST(Collectives, OfGradientsThatTravelInOtherFormsAreNotMixed) {
  const auto context_of = [](comm::Communicator& world) {
    return zero::Context{.groups = {.all = &world, .gradients = &world, .shards = &world}};
  };
  ExpectNotMixed([&](comm::Communicator& world, const std::string& layer) {
    const zero::QuantizedCall call{.part = at::zeros({8}), .full = at::zeros({16}), .tag = layer};
    zero::QuantizedReduction(call, context_of(world)).Await();
  });
  ExpectNotMixed([&](comm::Communicator& world, const std::string& layer) {
    zero::Context context = context_of(world);
    context.secondary = {.within = &world, .across = &world.Group("alone", {world.rank()})};
    const zero::QuantizedCall call{.part = at::zeros({8}), .full = at::zeros({16}), .tag = layer};
    zero::QuantizedReduction(call, context).Await();
  });
  ExpectNotMixed([&](comm::Communicator& world, const std::string& layer) {
    zero::AllReduceRows(context_of(world), at::zeros({4, 2}), comm::ReduceOp::kSum, layer);
  });
}

// The status of building the tiny model on two ranks whose group compares no tags, as NCCL does
// not, after `change` has made rank 1's model another one.
std::string BuildAnotherModel(int stage, const std::function<void(BlockList&)>& change) {
  std::string message;
  testing::RunRanks(2, [&](comm::Communicator& host) {
    const auto world = MakeDeviceWorld(host);
    const auto model = MakeTinyModel({}, at::kFloat);
    if (host.rank() == 1) change(*model);
    const auto engine = Engine::create(model, TinyConfig({.stage = stage}), {.world = world.get()});
    if (engine.ok()) TrainTiny(**engine, {.stage = stage}, 1);
    if (host.rank() == 0) message = engine.status().message();
  });
  return message;
}

TEST(EngineCreate, RefusesAnotherModelThanThatOfRankZero) {
  const auto swap_layers = [](BlockList& model) {
    BlockList swapped;
    for (const int i : {0, 2, 1, 3}) swapped.Add(model.blocks()[static_cast<std::size_t>(i)]);
    swapped.Add(model.blocks()[4], {0});
    model = swapped;
  };
  for (const int stage : {0, 3}) {
    EXPECT_THAT(BuildAnotherModel(stage, swap_layers),
                HasSubstr("rank 1: its model has unit block 1 (layer.1) where rank 0 has "
                          "unit block 1 (layer.0): all ranks have to build the same model"));
    EXPECT_THAT(BuildAnotherModel(stage,
                                  [](BlockList& model) {
                                    model.block(2).named_parameters()["b"].set_requires_grad(false);
                                  }),
                HasSubstr("rank 1: its model has parameter layer.1.b: [5] Float, frozen where rank "
                          "0 has parameter layer.1.b: [5] Float, trained"));
    EXPECT_THAT(
        BuildAnotherModel(
            stage, [](BlockList& model) { model.Add(MakeTinyModel({}, at::kFloat)->blocks()[1]); }),
        HasSubstr("rank 1: its model has unit block 5 (layer.0) where rank 0 has "
                  "nothing more"));
  }
}

// Each has an expert of its own at the same place, and one of them is frozen.
TEST(SameModel, AsksRanksWithOtherExpertsToFreezeThemAlike) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const auto check = [&](bool trains) {
      const zero::NamedParameter parameter{.name = "experts." + std::to_string(world.rank()),
                                           .tensor = at::zeros({3}).set_requires_grad(trains),
                                           .placement = {.global_shape = {3}, .expert = true}};
      return zero::CheckSameModel({{.name = "unit", .parameters = {parameter}}}, world);
    };
    EXPECT_TRUE(check(/*trains=*/true).ok());
    EXPECT_THAT(
        check(/*trains=*/world.rank() == 0).message(),
        HasSubstr("rank 1: its model has parameter of an expert: [3] Float, frozen where rank 0 "
                  "has parameter of an expert: [3] Float, trained: the experts of a layer must be "
                  "alike on all ranks: freeze all experts of a layer or none"));
  });
}

// So that ranks which have not been compared at the start are when they step.
TEST(PlanHash, DistinguishesModelsThatDifferInNamesOnly) {
  testing::RunRanks(1, [](comm::Communicator& world) {
    device::MemoryLedger ledger;
    const zero::Context context{
        .groups = {.all = &world, .gradients = &world, .shards = &world},
        .mesh = topology::Mesh::Create({}, 1).value(),
        .ledger = &ledger,
    };
    const auto hash = [&](const std::string& name) {
      const auto fill = [](int, const std::vector<zero::OwnRange>&) {
        return StatusOr<zero::FirstValues>(zero::FirstValues::kSameEverywhere);
      };
      const zero::NamedParameter parameter{
          .name = name,
          .tensor = models::UnmaterialisedParameter({3}, at::kFloat),
          .placement = {.global_shape = {3}}};
      const zero::ParameterUnit unit{.name = "unit", .parameters = {parameter}};
      return zero::ShardedModel::Create(context, {unit}, fill).value()->plan_hash();
    };
    EXPECT_EQ(hash("a"), hash("a"));
    EXPECT_NE(hash("a"), hash("b"));
  });
}

}  // namespace
}  // namespace ds::tests
