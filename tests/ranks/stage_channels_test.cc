// Tensor ranks send each other's stages their parts of what stages send: with the same bits, and
// that many times fewer bytes.

#include "runtime/engine/stage_channels.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/ranks/decoder_run.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using engine::NamedTensors;
using engine::StageChannels;

constexpr std::uint64_t kHeader = 4096;  // in front of a message of activations

// Equal parts, some values left, fewer values than ranks, and none.
NamedTensors MakeMessage() {
  const auto count = [](std::int64_t first, std::int64_t end) {
    return at::arange(first, end, at::kFloat);
  };
  return {{"even", count(0, 24).view({2, 12}).requires_grad_()},
          {"left", count(30, 44).view({2, 7}).t().requires_grad_()},
          {"less", at::full({}, 5.0).requires_grad_()},
          {"none", at::empty({0, 3})},
          {"whole", at::arange(7)}};
}

void ExpectSameTensors(const NamedTensors& expected, const NamedTensors& ours) {
  ASSERT_EQ(ours.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_TRUE(ours.at(name).equal(tensor)) << name;
  }
}

// Runs two stages of `tensor` ranks each, with this rank's channels and its stage.
template <typename Body>
void RunStages(int tensor, const engine::ChannelSharding& sharding, const Body& body) {
  testing::RunRanks(2 * tensor, [&](comm::Communicator& world) {
    const int stage = world.rank() / tensor, part = world.rank() % tensor;
    comm::Communicator& stages = world.Group(fmt::format("stages {}", part), {part, tensor + part});
    std::vector<int> members;
    for (int i = 0; i < tensor; ++i) members.push_back(stage * tensor + i);
    engine::ChannelSharding own = sharding;
    own.tensor = &world.Group(fmt::format("tensor {}", stage), members);
    StageChannels channels(stages, own);
    body(channels, stage, world);
    channels.AwaitSends();
  });
}

TEST(StageChannels, PartitionedTensorsArriveInFull) {
  for (const int tensor : {2, 3}) {
    for (const bool parts : {false, true}) {
      RunStages(tensor, {.activations = parts, .gradients = !parts},
                [&](StageChannels& channels, int stage, comm::Communicator&) {
                  const NamedTensors sent = MakeMessage();
                  if (stage == 0) {
                    channels.SendActivations(1, sent);
                    const NamedTensors gradients = channels.ReceiveGradients(1, sent);
                    ExpectSameTensors({{"even", sent.at("even") * 2},
                                       {"left", sent.at("left") * 2},
                                       {"less", sent.at("less") * 0}},
                                      gradients);
                  } else {
                    NamedTensors received = channels.ReceiveActivations(0);
                    ExpectSameTensors(sent, received);
                    for (const char* name : {"even", "left"}) {
                      received.at(name).mutable_grad() = (sent.at(name) * 2).detach();
                    }
                    channels.SendGradients(0, received);
                  }
                });
    }
  }
}

TEST(StageChannels, ASingleRankSendsTheFullTensor) {
  RunStages(2, {}, [](StageChannels& channels, int stage, comm::Communicator& world) {
    if (world.rank() == 2) channels.SendFull(0, MakeMessage());
    if (world.rank() == 0) ExpectSameTensors(MakeMessage(), channels.ReceiveFull(1));
    if (stage == 0) channels.SendActivations(1, MakeMessage());
    if (stage == 1) ExpectSameTensors(MakeMessage(), channels.ReceiveActivations(0));
  });
}

struct TrainedStage {
  DecoderOutcome outcome;
  std::uint64_t bytes = 0;  // that rank 0 has sent and received
};

TrainedStage TrainCounted(const DecoderRun& run, int ranks) {
  TrainedStage trained;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const auto engine = MakeDecoderEngine(run, world);
    const auto bytes = [&] { return world.traffic().of(comm::TrafficKind::kPointToPoint).bytes; };
    const std::uint64_t before = bytes();
    auto steps = TrainDecoder(*engine, run, kTrainedSteps);
    const std::uint64_t after = bytes();
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) {
      trained = {{std::move(steps), std::move(parameters)}, after - before};
    }
  });
  return trained;
}

struct ChannelCase {
  const char* model;
  int tensor, sequence = 1;
  pipeline::ScheduleKind schedule = pipeline::ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;
};

// Two samples of 12 tokens of 24 values, forward and backward, four micro-batches a step; with
// `chunks` the first stage sends as often for each of them, and receives from the last one's.
TEST(StageChannels, TensorRanksDivideTheBytesBetweenStagesAndChangeNoBit) {
  using Kind = pipeline::ScheduleKind;
  for (const ChannelCase& sharding :
       {ChannelCase{kDroppingDecoder, 2}, ChannelCase{kLlamaDecoder, 4},
        ChannelCase{kLlamaDecoder, 2, 2}, ChannelCase{kDistancesDecoder, 3},
        ChannelCase{kMixtralDecoder, 2}, ChannelCase{kLlamaDecoder, 2, 1, Kind::kInterleaved, 2},
        ChannelCase{kLlamaDecoder, 2, 1, Kind::kZeroBubbleV, 2}}) {
    SCOPED_TRACE(fmt::format("{} on tp {} sp {}, {}", sharding.model, sharding.tensor,
                             sharding.sequence, NameOf(sharding.schedule)));
    DecoderRun run{.model = sharding.model,
                   .tensor = sharding.tensor,
                   .sequence = sharding.sequence,
                   .pipeline = 2,
                   .schedule = sharding.schedule,
                   .chunks = sharding.chunks,
                   .accumulation = 4};
    const TrainedStage in_parts = TrainCounted(run, run.ranks_of_a_sample());
    run.sends_parts = false;
    const TrainedStage full = TrainCounted(run, run.ranks_of_a_sample());
    ExpectSameBits(full.outcome, in_parts.outcome);
    if (sharding.model == kMixtralDecoder) {  // sends numbers of its routers, too
      EXPECT_LT(in_parts.bytes, full.bytes);
      continue;
    }
    const bool returns_within_stage =
        sharding.schedule == Kind::kZeroBubbleV;  // within the last stage
    const std::uint64_t links =
        returns_within_stage ? 2 : 2 * static_cast<std::uint64_t>(sharding.chunks) - 1;
    const std::uint64_t messages = links * 4 * kTrainedSteps;
    const std::uint64_t tensor_bytes =
        2ULL * 12 * 24 * sizeof(float) / static_cast<std::uint64_t>(sharding.sequence);
    EXPECT_EQ(full.bytes, messages * (kHeader + 2 * tensor_bytes));
    EXPECT_EQ(
        in_parts.bytes,
        messages * (kHeader + 2 * tensor_bytes / static_cast<std::uint64_t>(sharding.tensor)));
  }
}

}  // namespace
}  // namespace ds::tests
