// Stages of a pipeline whose ranks have each matrix or each sample between them, with data
// parallelism beside it, train to what one rank trains; and so does a seeded walk over everything
// that composes. Sums have another order than one rank's.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/plan/model/model_ranks.h"
#include "tests/ranks/decoder_run.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/pair_cover.h"
#include "tests/support/rank_harness.h"
#include "tests/support/seeded_draw.h"

namespace ds::tests {
namespace {

using pipeline::ScheduleKind;
using sequence_parallel::SequenceKind;

// A head that is tied, cut in a vocabulary that two does not divide; dropout.
constexpr const char* kTied = kDroppingDecoder;
constexpr const char* kUntied = kLlamaDecoder;

constexpr std::initializer_list<ScheduleKind> kKinds = {
    ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGPipe, ScheduleKind::kInterleaved,
    ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleV};

std::string Describe(const DecoderRun& run, int ranks) {
  return fmt::format(
      "{} on {} ranks: pp {} ({}, {} chunks) tp {} sp {}{}, ZeRO {}, {} micro-batches{}",
      run.model == kTied ? "gpt2" : "llama", ranks, run.pipeline, NameOf(run.schedule), run.chunks,
      run.tensor, run.sequence, run.sequence_kind == SequenceKind::kRing ? " in a ring" : "",
      run.stage, run.accumulation, run.bf16 ? ", bf16" : "");
}

// One rank's run of the same numbers.
DecoderRun AloneOf(DecoderRun run) {
  run.pipeline = run.tensor = run.sequence = run.chunks = 1;
  run.schedule = ScheduleKind::kOneForwardOneBackward;
  run.sequence_kind = SequenceKind::kUlysses;
  run.stage = 0;
  return run;
}

struct Shape {
  int pipeline, tensor, sequence, readers, zero;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;
};

void ExpectTrainsWhatOneRankTrains(const std::vector<Shape>& shapes) {
  for (const char* model : {kTied, kUntied}) {
    const DecoderRun one{
        .model = model, .accumulation = 4, .optimizer = config::SgdConfig{.momentum = 0.9}};
    const DecoderOutcome alone = RunDecoder(one, 1, kTrainedSteps);
    for (const Shape& shape : shapes) {
      DecoderRun run = one;
      run.pipeline = shape.pipeline;
      run.tensor = shape.tensor;
      run.sequence = shape.sequence;
      run.stage = shape.zero;
      run.schedule = shape.schedule;
      run.chunks = shape.chunks;
      const int ranks = run.ranks_of_a_sample() * shape.readers;
      SCOPED_TRACE(Describe(run, ranks));
      const DecoderOutcome ours = RunDecoder(run, ranks, kTrainedSteps);
      ExpectSameSteps(alone.steps, ours.steps);
      ExpectSameParameters(alone, ours);
    }
  }
}

TEST(ComposedParallel, StagesOfTensorRanksMatchOneRank) {
  ExpectTrainsWhatOneRankTrains({{2, 2, 1, 1, 0},
                                 {2, 2, 1, 2, 1},
                                 {2, 2, 1, 2, 2},
                                 {2, 2, 1, 2, 3},
                                 {3, 2, 1, 1, 1, ScheduleKind::kGPipe},
                                 {2, 4, 1, 1, 1},
                                 {4, 2, 1, 1, 0},
                                 {2, 2, 1, 2, 3, ScheduleKind::kInterleaved, 2},
                                 {2, 2, 1, 2, 2, ScheduleKind::kZeroBubbleH1},
                                 {2, 2, 1, 2, 3, ScheduleKind::kZeroBubbleV, 2}});
}

TEST(ComposedParallel, StagesOfSequenceRanksMatchOneRank) {
  ExpectTrainsWhatOneRankTrains({{2, 1, 2, 1, 0},
                                 {2, 1, 2, 2, 1},
                                 {2, 1, 2, 2, 2},
                                 {2, 1, 2, 2, 3},
                                 {3, 1, 2, 1, 3},
                                 {2, 1, 4, 1, 1},
                                 {2, 2, 2, 1, 1},
                                 {2, 2, 2, 1, 3, ScheduleKind::kGPipe},
                                 {2, 1, 2, 2, 2, ScheduleKind::kInterleaved, 2},
                                 {2, 1, 2, 2, 1, ScheduleKind::kZeroBubbleH1},
                                 {2, 1, 2, 2, 3, ScheduleKind::kZeroBubbleV, 2}});
}

TEST(ComposedParallel, CheckpointsMoveBetweenAllPartitions) {
  for (const char* model : {kTied, kUntied}) {
    const DecoderRun alone{.model = model};
    const DecoderOutcome through = RunDecoder(alone, 1, 4);
    const DecoderRun tensor{
        .model = model, .tensor = 2, .pipeline = 2, .stage = 1, .accumulation = 2};
    const DecoderRun chunks{.model = model,
                            .sequence = 2,
                            .pipeline = 2,
                            .schedule = ScheduleKind::kInterleaved,
                            .chunks = 2,
                            .stage = 3,
                            .accumulation = 2};
    const std::tuple<DecoderRun, int, DecoderRun, int> moves[] = {{tensor, 8, alone, 1},
                                                                  {alone, 1, tensor, 4},
                                                                  {tensor, 4, chunks, 4},
                                                                  {chunks, 8, tensor, 8},
                                                                  {chunks, 4, alone, 1}};
    for (const auto& [first, ranks_of_first, second, ranks_of_second] : moves) {
      SCOPED_TRACE(Describe(first, ranks_of_first) + " to " + Describe(second, ranks_of_second));
      const auto ours = GoOnFromCheckpoint(first, ranks_of_first, second, ranks_of_second);
      ExpectSameSteps({through.steps[2], through.steps[3]}, ours);
    }
  }
}

TEST(ComposedParallel, EvaluationSeesTheSameLoss) {
  for (const char* model : {kTied, kUntied}) {
    const DecoderRun one{.model = model, .accumulation = 2};
    const auto expected = EvaluateDecoder(one, 1);
    DecoderRun split = one;
    split.pipeline = 2;
    for (const auto& [tensor, sequence, chunks] :
         {std::tuple(2, 1, 1), {1, 2, 1}, {2, 2, 1}, {1, 1, 2}, {2, 1, 2}}) {
      split.tensor = tensor;
      split.sequence = sequence;
      split.chunks = chunks;
      split.schedule =
          chunks > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneForwardOneBackward;
      SCOPED_TRACE(Describe(split, split.ranks_of_a_sample()));
      const auto ours = EvaluateDecoder(split, split.ranks_of_a_sample());
      EXPECT_NEAR(ours.loss, expected.loss, 1e-6);
      EXPECT_EQ(ours.labels, expected.labels);
    }
  }
}

// Draws until the ranks are at most eight and the model can be cut so.
class Walk {
 public:
  explicit Walk(std::uint64_t seed) : draw_(seed) {}

  struct Step {
    DecoderRun run;
    int ranks = 1;
  };
  Step Next() {
    while (true) {
      Step step = Draw();
      if (step.ranks > 1 && step.ranks <= 8 && IsValid(step)) return step;
    }
  }

 private:
  Step Draw() {
    using Kind = config::RecomputeChoice::Kind;
    DecoderRun run{.model = draw_.OneOf({kTied, kUntied}),
                   .tensor = draw_.OneOf({1, 1, 2, 4}),
                   .sequence = draw_.OneOf({1, 1, 2, 4}),
                   .pipeline = draw_.OneOf({1, 2, 2, 3, 4}),
                   .sequence_kind = draw_.OneOf({SequenceKind::kUlysses, SequenceKind::kRing}),
                   .schedule = draw_.OneOf(kKinds),
                   .stage = draw_.OneOf({0, 1, 2, 3}),
                   .accumulation = draw_.OneOf({1, 2, 4, 8}),
                   .bf16 = draw_.OneOf({0, 0, 0, 1}) == 1,
                   .recompute = {.kind = draw_.OneOf({Kind::kNone, Kind::kNone, Kind::kBlocks})}};
    run.chunks = pipeline::DefaultChunksOf(run.schedule);
    readers_ = draw_.OneOf({1, 2, 4});
    return {run, run.ranks_of_a_sample() * readers_};
  }

  bool IsValid(const Step& step) const {
    const DecoderRun& run = step.run;
    if (8 % (readers_ * run.accumulation) != 0) return false;
    const auto described = models::ParseModelConfig(run.model, "config.json").value();
    if (!models::CheckModelRanks(described.decoder, run.tensor, run.sequence, 1, run.sequence_kind)
             .ok()) {
      return false;
    }
    if (run.pipeline == 1) return run.schedule == ScheduleKind::kOneForwardOneBackward;
    const int blocks = static_cast<int>(described.decoder.layers) + 2;
    const pipeline::PipelineShape shape{.stages = run.pipeline,
                                        .chunks = run.chunks,
                                        .micro_batches = static_cast<int>(run.accumulation)};
    return shape.virtual_stages() <= blocks &&
           pipeline::PipelineSchedule::Create(run.schedule, shape).ok();
  }

  testing::SeededDraw draw_;
  int readers_ = 1;
};

// Compares runs of two steps with one rank's of the same numbers, each of which it makes once.
class AloneRuns {
 public:
  void ExpectSame(const Walk::Step& step) {
    const auto& [run, ranks] = step;
    const std::string key = fmt::format("{} {} {}", run.model, run.accumulation, run.bf16);
    if (!alone_.contains(key)) alone_[key] = RunDecoder(AloneOf(run), 1, kSteps);
    const DecoderOutcome ours = RunDecoder(run, ranks, kSteps);
    const StepTolerance narrow{.loss = 2e-2, .norm = 0.08};
    ExpectSameSteps(alone_[key].steps, ours.steps, run.bf16 ? narrow : StepTolerance());
  }

 private:
  static constexpr int kSteps = 2;
  std::map<std::string, DecoderOutcome> alone_;  // by what changes one rank's numbers
};

TEST(ComposedParallel, ASeededWalkOverAllCombinationsMatchesOneRank) {
  constexpr int kWalks = 64;
  Walk walk(/*seed=*/19);
  AloneRuns alone;
  std::set<std::string> seen;
  while (static_cast<int>(seen.size()) < kWalks) {
    const Walk::Step step = walk.Next();
    if (!seen.insert(Describe(step.run, step.ranks)).second) continue;
    SCOPED_TRACE(Describe(step.run, step.ranks));
    alone.ExpectSame(step);
    if (::testing::Test::HasFailure()) return;  // others would say the same
  }
}

testing::Traits TraitsOf(const Walk::Step& step) {
  const DecoderRun& run = step.run;
  const bool is_ring = run.sequence > 1 && run.sequence_kind == SequenceKind::kRing;
  const bool recomputes = run.recompute.kind != config::RecomputeChoice::Kind::kNone;
  return {run.model == kTied ? "gpt2" : "llama",
          fmt::format("pp {}", run.pipeline),
          std::string(NameOf(run.schedule)),
          fmt::format("tp {}", run.tensor),
          fmt::format("sp {}{}", run.sequence, is_ring ? " in a ring" : ""),
          fmt::format("{} readers", step.ranks / run.ranks_of_a_sample()),
          fmt::format("ZeRO {}", run.stage),
          fmt::format("{} micro-batches", run.accumulation),
          run.bf16 ? "bf16" : "fp32",
          recomputes ? "recomputes" : "keeps"};
}

// Any two choices that go together are made by one of the runs of each cover, with others beside
// them in each.
TEST(ComposedParallel, EveryPairOfChoicesMatchesOneRank) {
  constexpr int kCovers = 20, kCases = 3000;
  Walk walk(/*seed=*/71);
  AloneRuns alone;
  testing::VisitCovers(
      kCovers, kCases, [&] { return walk.Next(); }, TraitsOf,
      [&](const Walk::Step& step, const testing::Traits& traits) {
        SCOPED_TRACE(::testing::PrintToString(traits));
        alone.ExpectSame(step);
        return !::testing::Test::HasFailure();
      });
}

}  // namespace
}  // namespace ds::tests
