#include "runtime/rank/seen_tokens.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::rank {
namespace {

using ::testing::HasSubstr;

SeenTokens Dropping() {
  return SeenTokens({.random_ltd = config::RandomLtdConfig{.total_layer_num = 2, .layers = {1}}});
}

std::string Refusal(const models::DecoderSpec& spec, std::int64_t seq_len) {
  return Dropping().Prepare(BlockList(), spec, seq_len).message();
}

TEST(SeenTokens, NoTokensAreDroppedWhereAttentionCountsThoseBetween) {
  models::DecoderSpec spec;
  spec.positions = models::Positions::kAlibi;
  EXPECT_THAT(Refusal(spec, 32), HasSubstr("ALiBi"));
  spec.positions = models::Positions::kRotary;
  spec.window = 16;
  EXPECT_THAT(Refusal(spec, 32), HasSubstr("a sliding window"));
  EXPECT_THAT(Refusal(spec, 16), HasSubstr("total_layer_num"));  // a window over all of it
  EXPECT_TRUE(SeenTokens().Prepare(BlockList(), spec, 32).ok());
}

// Rotary angles that follow the length and NEFTune's noise go by what is seen.
TEST(SeenTokens, ATruncatedSampleHasTheRemainingLengths) {
  const at::Tensor tokens = at::arange(20).view({2, 10});
  Bundle alone{.batch = {{"tokens", tokens}, {"labels", tokens}}};
  alone.longest_document = alone.longest_sample = 9;
  TruncateSamples(16, &alone);
  EXPECT_EQ(alone.longest_document, 9);
  TruncateSamples(4, &alone);
  EXPECT_EQ(alone.tensor("labels").sizes(), (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(alone.longest_document, 4);
  EXPECT_EQ(alone.longest_sample, 4);
  const at::Tensor documents =
      at::tensor({0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2}, at::kLong)
          .view({2, 10});
  Bundle packed{.batch = {{"tokens", tokens}, {"labels", tokens}, {"documents", documents}}};
  packed.longest_document = 8;
  packed.longest_sample = 10;
  TruncateSamples(5, &packed);
  EXPECT_EQ(packed.longest_document, 3);
  EXPECT_EQ(packed.longest_sample, 5);
}

}  // namespace
}  // namespace ds::rank
