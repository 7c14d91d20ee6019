#include "runtime/checkpoint_format/lineage.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/checkpoint_format/latest.h"

namespace ds::checkpoint {
namespace {

TEST(Lineage, ALineGrowsByStepsAndByGenerations) {
  Lineage line;
  line = ContinueLineage(line, 10, line);
  line = ContinueLineage(line, 20, line);
  EXPECT_EQ(line, (Lineage{0, {{0, 20}}}));
  line = ContinueLineage(line, 30, Lineage{4, {}});
  EXPECT_EQ(line, (Lineage{4, {{0, 30}}})) << "generation 4 goes on from step 30";
  line = ContinueLineage(line, 40, Lineage{4, {}});
  EXPECT_EQ(line, (Lineage{4, {{0, 30}, {4, 40}}}));
  for (const CheckpointId id : {CheckpointId{0, 10}, {0, 30}, {4, 31}, {4, 40}}) {
    EXPECT_TRUE(DescendsFrom(line, id)) << id.generation << ":" << id.step;
  }
  for (const CheckpointId id : {CheckpointId{0, 31}, {1, 10}, {4, 41}}) {
    EXPECT_FALSE(DescendsFrom(line, id)) << id.generation << ":" << id.step;
  }
}

TEST(Lineage, AMissingGenerationIsTheParents) {
  EXPECT_EQ(ContinueLineage({7, {}}, 10, {}), (Lineage{7, {{7, 10}}}));
}

TEST(Lineage, DistinguishesStartsOfOneGeneration) {
  const Lineage first{.generation = 2, .past = {}, .start = 61};
  const Lineage line = ContinueLineage(ContinueLineage(first, 10, first), 20, {2, {}, 67});
  EXPECT_EQ(line, (Lineage{2, {{2, 20, 61}}, 67}));
  EXPECT_TRUE(DescendsFrom(line, {2, 15, 61}));
  EXPECT_FALSE(DescendsFrom(line, {2, 15, 67}));
  EXPECT_FALSE(DescendsFrom(line, {2, 15}));
  EXPECT_EQ(ContinueLineage(line, 30, line), (Lineage{2, {{2, 20, 61}, {2, 30, 67}}, 67}));
}

TEST(Lineage, AGenerationHasOneStartInAJob) {
  const Lineage first{0, {{0, 20, 61}}, 61};
  EXPECT_TRUE(MayBeOfOneJob(first, {1, {{0, 20, 61}}, 67})) << "a restart";
  EXPECT_TRUE(MayBeOfOneJob(first, {1, {}, 67})) << "a restart from scratch";
  EXPECT_FALSE(MayBeOfOneJob(first, {0, {}, 67}));
  EXPECT_FALSE(MayBeOfOneJob(first, {2, {{0, 10, 71}, {1, 20, 73}}, 79}));
  EXPECT_FALSE(MayBeOfOneJob({1, {{0, 20, 61}}, 67}, {1, {{0, 20, 61}}, 71})) << "a copied folder";
  EXPECT_TRUE(MayBeOfOneJob(first, {0, {{0, 10}}})) << "a writer that draws no ids";
}

TEST(Lineage, DrawsIdsThatEveryJsonReaderKeeps) {
  std::set<std::int64_t> drawn;
  for (int i = 0; i < 100; ++i) drawn.insert(DrawStart());
  EXPECT_EQ(drawn.size(), 100U);
  EXPECT_GT(*drawn.begin(), 0);
  EXPECT_LT(*drawn.rbegin(), std::int64_t{1} << 53);
}

TEST(Lineage, SurvivesItsJson) {
  for (const Lineage& line :
       {Lineage{4, {{0, 30}, {4, 40}}}, Lineage{4, {{0, 30, 61}, {4, 40, 67}, {4, 50, 71}}, 83}}) {
    const auto read = LineageFromJson(nlohmann::json::parse(LineageToJson(line).dump()));
    EXPECT_EQ(read.value(), line);
  }
  EXPECT_EQ(LineageToJson({4, {{0, 30}}}).dump(), R"({"generation":4,"past":[[0,30]]})")
      << "as a writer that draws no ids";
}

TEST(Lineage, RefusesInvalidLineages) {
  for (const char* text :
       {"3", "{}", R"({"generation":-1,"past":[]})", R"({"generation":1,"past":7})",
        R"({"generation":1,"past":[3]})", R"({"generation":1,"past":[[0,1,2,3]]})",
        R"({"generation":1,"past":[[0,1,-2]]})", R"({"generation":1,"past":[],"start":"x"})",
        R"({"generation":9,"past":[[3,10,5],[3,20,5]]})", R"({"generation":1,"past":[[0,-1]]})",
        R"({"generation":1,"past":[[2,10]]})", R"({"generation":9,"past":[[3,10],[3,20]]})",
        R"({"generation":9,"past":[[3,10],[2,5]]})",
        R"({"generation":18446744073709551615,"past":[]})"}) {
    EXPECT_FALSE(LineageFromJson(nlohmann::json::parse(text)).ok()) << text;
  }
}

TEST(Latest, SurvivesItsText) {
  for (const Latest& latest :
       {Latest{20, 0, {}}, Latest{20, 3, {}}, Latest{20, 3, Lineage{1, {{0, 10}}}}}) {
    EXPECT_EQ(ParseLatest(SerializeLatest(latest)), latest);
  }
  EXPECT_EQ(SerializeLatest({20, 0, {}}), "step-20\n") << "as all versions write it";
}

TEST(Latest, SkipsUnreadableFiles) {
  EXPECT_EQ(ParseLatest("step-20"), (Latest{20, 0, {}}));
  EXPECT_EQ(ParseLatest("step-20\nnonsense\n"), (Latest{20, 0, {}}));
  EXPECT_EQ(ParseLatest("step-20\n{\"may_save\":\"x\",\"lineage\":5}\n"), (Latest{20, 0, {}}));
  for (const char* text : {"", "\n", "step-", "../step-10\n", "step-010\n"}) {
    EXPECT_EQ(ParseLatest(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ds::checkpoint
