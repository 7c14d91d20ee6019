// Dropout of adapters' inputs: a step does not depend on how samples, tokens, layers and matrices
// are cut, nor on what is computed again.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/ranks/decoder_run.h"
#include "tests/ranks/latent_decoder.h"

namespace ds::tests {
namespace {

using sequence_parallel::SequenceKind;

// Rows of 35 inputs in the second product of its MLP: neither half begins with a counter's element.
constexpr char kOddRowsLlama[] = R"({"model_type":"llama","vocab_size":37,"hidden_size":24,
    "intermediate_size":35,"num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":3,
    "max_position_embeddings":16})";
// One matrix for queries, keys and values, [in, out].
constexpr char kInOutGpt2[] = R"({"model_type":"gpt2","vocab_size":47,"n_positions":16,"n_embd":24,
    "n_layer":2,"n_head":4,"embd_pdrop":0.0,"resid_pdrop":0.0,"attn_pdrop":0.0})";

DecoderRun Dropping(const char* model) {
  return {.model = model, .lora_rank = 3, .lora_dropout = 0.25};
}

struct DropoutSplit {
  const char* name;
  DecoderRun run;
  int ranks;
};

void ExpectSameHowever(const DecoderOutcome& alone, const std::vector<DropoutSplit>& splits) {
  for (const DropoutSplit& split : splits) {
    SCOPED_TRACE(split.name);
    const DecoderOutcome ours = RunDecoder(split.run, split.ranks, kTrainedSteps);
    ExpectSameSteps(alone.steps, ours.steps);
    for (const auto& [name, value] : alone.parameters) {
      EXPECT_TRUE(ours.parameters.at(name).allclose(value, 1e-3, 1e-5)) << name;
    }
  }
}

TEST(AdapterDropout, DoesNotDependOnThePartition) {
  for (const char* model : {kInOutGpt2, kOddRowsLlama}) {
    SCOPED_TRACE(model);
    const DecoderOutcome alone = RunDecoder(Dropping(model), 1, kTrainedSteps);
    DecoderRun tensor = Dropping(model), stages = tensor, micro = tensor, again = tensor;
    tensor.tensor = 2;
    stages.pipeline = 2;
    stages.accumulation = 2;
    micro.stage = 3;
    micro.accumulation = 2;
    again.recompute = {.kind = config::RecomputeChoice::Kind::kBlocks};
    ExpectSameHowever(alone, {{"tensor ranks", tensor, 2},
                              {"stages", stages, 2},
                              {"micro-batches", micro, 2},
                              {"computed again", again, 1}});
  }
}

TEST(AdapterDropout, DoesNotDependOnThePartitionOfTokens) {
  const DecoderOutcome alone = RunDecoder(Dropping(kLlamaDecoder), 1, kTrainedSteps);
  DecoderRun heads = Dropping(kLlamaDecoder), ring = heads, sp_chunk_run = heads;
  heads.sequence = 2;
  ring.sequence = 2;
  ring.sequence_kind = SequenceKind::kRing;
  sp_chunk_run.sp_chunk = 4;
  DecoderRun both = sp_chunk_run;
  both.sequence = 2;
  ExpectSameHowever(alone, {{"heads", heads, 2},
                            {"ring", ring, 2},
                            {"portions", sp_chunk_run, 1},
                            {"portions of heads", both, 2}});
}

// Also of latent keys and values, and of what stands next to experts.
TEST(AdapterDropout, ReachesEveryLayerThatHasAnAdapter) {
  for (const char* model : {kLatentDecoder, kManyExpertsDecoder}) {
    SCOPED_TRACE(model);
    const DecoderOutcome alone = RunDecoder(Dropping(model), 1, kTrainedSteps);
    DecoderRun tensor = Dropping(model), experts = tensor;
    tensor.tensor = 2;
    experts.expert = 2;
    ExpectSameHowever(alone, {{"tensor ranks", tensor, 2}, {"expert ranks", experts, 2}});
  }
}

// B begins as zeros: the first loss is the base model's, its gradient is not.
TEST(AdapterDropout, ChangesTheTrainedWeights) {
  const DecoderOutcome dropping = RunDecoder(Dropping(kLlamaDecoder), 1, kTrainedSteps);
  const DecoderRun without{.model = kLlamaDecoder, .lora_rank = 3};
  const DecoderOutcome full = RunDecoder(without, 1, kTrainedSteps);
  EXPECT_EQ(dropping.steps[0].loss, full.steps[0].loss);
  EXPECT_GT(std::abs(dropping.steps[0].grad_norm - full.steps[0].grad_norm), 1e-3);
}

}  // namespace
}  // namespace ds::tests
