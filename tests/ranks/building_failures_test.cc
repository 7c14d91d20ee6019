// An engine that cannot be built on one rank is an error on all of them, at once: none waits for
// one that has thrown, even where its caller keeps the world.

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <stdexcept>

#include "runtime/comm/communicator.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"
#include "tests/support/refusing_allocator.h"

namespace ds::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kFailingRanks = 3;
constexpr int kFailing = 1;

// What Engine::create throws or returns on each rank. No rank leaves its world before all have an
// answer.
std::vector<std::string> Create(
    int stage,
    const std::function<void(int rank, std::shared_ptr<BlockList>*, EngineOptions*)>& prepare) {
  std::vector<std::string> answers(kFailingRanks);
  std::latch answered(kFailingRanks);
  testing::RunRanks(kFailingRanks, [&](comm::Communicator& world) {
    auto model = MakeTinyModel({.width = 64}, at::kFloat);
    EngineOptions options{.world = &world};
    prepare(world.rank(), &model, &options);
    std::string& answer = answers[static_cast<std::size_t>(world.rank())];
    try {
      answer = Engine::create(model, TinyConfig({.stage = stage}), options).status().message();
    } catch (const c10::Error& error) {
      answer = std::string("threw: ") + error.what_without_backtrace();
    } catch (const std::exception& error) {
      answer = std::string("threw: ") + error.what();
    }
    answered.arrive_and_wait();
  });
  return answers;
}

void ExpectAllThrow(const std::vector<std::string>& answers, const std::string& what) {
  for (int rank = 0; rank < kFailingRanks; ++rank) {
    const std::string& answer = answers[static_cast<std::size_t>(rank)];
    if (rank == kFailing) {
      EXPECT_THAT(answer, AllOf(StartsWith("threw: "), HasSubstr(what)));
    } else {
      EXPECT_THAT(answer, AllOf(StartsWith("threw: rank 1 has given up: building the engine: "),
                                HasSubstr(what)));
    }
  }
}

TEST(BuildingFails, OnEveryRankWhereAUsersFunctionThrowsOnOne) {
  for (const int stage : {0, 3}) {
    ExpectAllThrow(Create(stage,
                          [](int rank, auto*, EngineOptions* options) {
                            options->read_values = [rank](const std::string& name, auto,
                                                          const at::Tensor& values) {
                              const bool throws = rank == kFailing && name == "layer.1.w";
                              if (throws) throw std::runtime_error("a file has gone");
                              values.zero_();
                              return OkStatus();
                            };
                          }),
                   "a file has gone");
    ExpectAllThrow(Create(stage,
                          [](int rank, auto*, EngineOptions* options) {
                            if (rank != kFailing) return;
                            options->parameter_group = [](auto, const auto&,
                                                          const auto&) -> optim::ParameterGroup {
                              throw std::out_of_range("no such group");
                            };
                          }),
                   "no such group");
  }
}

TEST(BuildingFails, OnEveryRankWhereTheOptimizersMemoryIsMissingOnOne) {
  testing::RefusingAllocator::Install();
  for (const int stage : {0, 2}) {
    ExpectAllThrow(Create(stage,
                          [](int rank, auto*, EngineOptions* options) {
                            // All of the parameters are there when the last block's values are.
                            using Refusal = testing::RefusingAllocator::Refusal;
                            const auto refusal = std::make_shared<std::optional<Refusal>>();
                            options->read_values = [rank, refusal](const std::string& name, auto,
                                                                   const at::Tensor& values) {
                              values.zero_();
                              if (rank == kFailing && name == "head.gain") refusal->emplace(512);
                              return OkStatus();
                            };
                          }),
                   "can't allocate memory");
  }
}

TEST(BuildingFails, WithOneStatusWhereOneRanksModelIsRefused) {
  const auto answers = Create(3, [&](int rank, std::shared_ptr<BlockList>* model, auto*) {
    if (rank == kFailing)
      (*model)->block(1).named_parameters()["w"].set_data(at::full({64, 64}, 1.0));
  });
  for (const std::string& answer : answers) {
    EXPECT_THAT(answer, HasSubstr("rank 1: block 1 (layer.0): 1 of 4 parameters have values"));
  }
}

TEST(BuildingFails, WhereABlockHasValuesOnSomeRanksOnly) {
  for (const int stage : {0, 3}) {
    const auto answers = Create(stage, [&](int rank, std::shared_ptr<BlockList>* model, auto*) {
      if (rank == 0) return;
      for (const auto& item : (*model)->block(2).named_parameters()) {
        at::Tensor parameter = item.value();
        parameter.set_data(at::full(parameter.sizes(), 1.0));
      }
    });
    for (const std::string& answer : answers) {
      EXPECT_THAT(answer, HasSubstr("building block 2 (layer.1): rank 1 has values for it and rank "
                                    "0 has none"));
    }
  }
}

}  // namespace
}  // namespace ds::tests
