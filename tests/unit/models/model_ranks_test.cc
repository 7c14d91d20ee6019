// What a decoder allows of tensor and sequence ranks.

#include "runtime/plan/model/model_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/model/families.h"

namespace ds::models {
namespace {

using sequence_parallel::HeadRange;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

DecoderSpec Described(const char* text) {
  return ReadDecoderSpec(nlohmann::ordered_json::parse(text), "config.json").value();
}

constexpr char kSixAndThree[] = R"({"model_type":"llama","hidden_size":24,
    "num_attention_heads":6,"num_key_value_heads":3})";

TEST(ModelRanksTest, RanksHaveFullKeyHeadsAndTheQueriesThatShareThem) {
  const auto even = sequence_parallel::ShareHeads(4, 4, 2).value();
  EXPECT_THAT(even.queries, ElementsAre(HeadRange{0, 2}, HeadRange{2, 2}));
  const auto uneven = sequence_parallel::ShareHeads(6, 3, 2).value();
  EXPECT_THAT(uneven.queries, ElementsAre(HeadRange{0, 4}, HeadRange{4, 2}));
  EXPECT_THAT(uneven.keys, ElementsAre(HeadRange{0, 2}, HeadRange{2, 1}));
  const auto repeated = sequence_parallel::ShareHeads(8, 2, 4).value();
  EXPECT_EQ(repeated.queries[3], (HeadRange{6, 2}));
  EXPECT_THAT(repeated.keys,
              ElementsAre(HeadRange{0, 1}, HeadRange{0, 1}, HeadRange{1, 1}, HeadRange{1, 1}));
}

TEST(ModelRanksTest, RefusesCountsThatRanksCannotShare) {
  const auto why = [](const char* model, int tensor, int sequence) {
    return CheckModelRanks(Described(model), tensor, sequence).message();
  };
  EXPECT_EQ(why(kSixAndThree, 1, 3), "");
  EXPECT_EQ(why(kSixAndThree, 6, 1), "");
  EXPECT_EQ(why(kSixAndThree, 1, 4),
            "4 sequence ranks cannot share 6 heads of the queries and 3 of the keys: 3 or 6 can; "
            "--sp_kind ring takes any number of ranks");
  // The second slice has one head of the keys, and two of the queries.
  EXPECT_EQ(why(kSixAndThree, 2, 2), "");
  EXPECT_EQ(why(kSixAndThree, 2, 4),
            "4 sequence ranks cannot share 2 heads of the queries and 1 of the keys: 2 can; "
            "--sp_kind ring takes any number of ranks");
  EXPECT_THAT(why(kSixAndThree, 6, 2), HasSubstr("cannot share 1 heads of the queries"));
  EXPECT_THAT(why(kSixAndThree, 4, 1), HasSubstr("cannot shard the model into 4 parts"));
  EXPECT_THAT(
      why(R"({"model_type":"llama","rope_scaling":{"rope_type":"dynamic","factor":2.0}})", 1, 2),
      HasSubstr("not built for rotary positions that depend on the length"));
  EXPECT_THAT(why(R"({"model_type":"mixtral","output_router_logits":true})", 1, 2),
              HasSubstr("balance of experts: leave it out with --router_aux_loss_coef 0"));
  EXPECT_EQ(why(R"({"model_type":"mixtral"})", 1, 2), "");
  EXPECT_EQ(why(R"({"model_type":"mixtral"})", 2, 1), "");
}

TEST(ModelRanksTest, RanksShareFullExperts) {
  const auto why = [](const char* model, int expert) {
    return CheckModelRanks(Described(model), 1, 1, expert).message();
  };
  constexpr char kEight[] = R"({"model_type":"mixtral","num_local_experts":8})";
  EXPECT_EQ(why(kEight, 4), "");
  EXPECT_EQ(why(kEight, 3), "3 ranks cannot share the 8 experts of a layer: take 2 or 4");
  EXPECT_THAT(why(kSixAndThree, 2), HasSubstr("the model has no experts that 2 ranks"));
}

TEST(ModelRanksTest, ARingHasAllHeadsOnEveryRank) {
  using sequence_parallel::SequenceKind;
  const DecoderSpec spec = Described(kSixAndThree);
  EXPECT_TRUE(CheckModelRanks(spec, 2, 4, 1, SequenceKind::kRing).ok());
  const auto plan = TensorPlan::Create(spec, 0, 1).value();
  const auto shares = ShareHeads(plan, 2, SequenceKind::kRing).value();
  EXPECT_THAT(shares.queries, ElementsAre(HeadRange{0, 6}, HeadRange{0, 6}));
  EXPECT_THAT(shares.keys, ElementsAre(HeadRange{0, 3}, HeadRange{0, 3}));
  const auto by_length =
      Described(R"({"model_type":"llama","rope_scaling":{"rope_type":"dynamic","factor":2.0}})");
  EXPECT_THAT(CheckModelRanks(by_length, 1, 2, 1, SequenceKind::kRing).message(),
              HasSubstr("not built for rotary positions that depend on the length"));
}

TEST(ModelRanksTest, ARingsRanksHaveTokensOfBothEnds) {
  using sequence_parallel::FindTokens;
  using sequence_parallel::SequenceKind;
  using sequence_parallel::TokenRange;
  const auto of = [](std::int64_t tokens, int rank, int ranks) {
    return FindTokens(SequenceKind::kRing, tokens, rank, ranks);
  };
  EXPECT_THAT(of(12, 0, 2), ElementsAre(TokenRange{0, 3}, TokenRange{9, 3}));
  EXPECT_THAT(of(12, 1, 2), ElementsAre(TokenRange{3, 3}, TokenRange{6, 3}));
  EXPECT_THAT(of(9, 0, 3), ElementsAre(TokenRange{0, 2}, TokenRange{8, 1}));
  EXPECT_THAT(of(9, 2, 3), ElementsAre(TokenRange{4, 2}, TokenRange{6, 1}));
  EXPECT_THAT(of(3, 1, 3), ElementsAre(TokenRange{1, 1}));
  EXPECT_THAT(FindTokens(SequenceKind::kUlysses, 12, 1, 3), ElementsAre(TokenRange{4, 4}));
}

TEST(ModelRanksTest, PartsOfASampleAreEqual) {
  EXPECT_TRUE(CheckSampleParts(12, 3).ok());
  EXPECT_EQ(CheckSampleParts(13, 4).message(),
            "4 sequence ranks cannot share samples (--seq_len) of 13 tokens: take 12 or 16");
  EXPECT_THAT(CheckSampleParts(3, 4).message(), HasSubstr("take 4"));
  EXPECT_TRUE(CheckSampleParts(14, 2, SequenceKind::kUlysses, 4).ok()) << "the last one is shorter";
  EXPECT_EQ(CheckSampleParts(12, 2, SequenceKind::kUlysses, 5).message(),
            "2 sequence ranks cannot share portions (--sp_chunk) of 5 tokens: take 4 or 6");
  EXPECT_THAT(CheckSampleParts(12, 2, SequenceKind::kRing, 4).message(),
              HasSubstr("is built for --sp_kind ulysses"));
  EXPECT_TRUE(CheckSampleParts(12, 1, SequenceKind::kRing, 5).ok()) << "there is no ring";
}

}  // namespace
}  // namespace ds::models
