#include "runtime/checkpoint/format/lineage.h"

#include <gtest/gtest.h>

#include "runtime/checkpoint/format/latest.h"

namespace ds::checkpoint {
namespace {

TEST(Lineage, ALineGrowsByStepsAndByGenerations) {
  Lineage line;
  line = ContinueLineage(line, 10, 0);
  line = ContinueLineage(line, 20, 0);
  EXPECT_EQ(line, (Lineage{0, {{0, 20}}}));
  line = ContinueLineage(line, 30, 4);
  EXPECT_EQ(line, (Lineage{4, {{0, 30}}})) << "generation 4 goes on from step 30";
  line = ContinueLineage(line, 40, 4);
  EXPECT_EQ(line, (Lineage{4, {{0, 30}, {4, 40}}}));
  for (const CheckpointId id : {CheckpointId{0, 10}, {0, 30}, {4, 31}, {4, 40}}) {
    EXPECT_TRUE(ComesFrom(line, id)) << id.generation << ":" << id.step;
  }
  for (const CheckpointId id : {CheckpointId{0, 31}, {1, 10}, {4, 41}}) {
    EXPECT_FALSE(ComesFrom(line, id)) << id.generation << ":" << id.step;
  }
}

TEST(Lineage, AGenerationThatIsNotToldIsTheParents) {
  EXPECT_EQ(ContinueLineage({7, {}}, 10, 0), (Lineage{7, {{7, 10}}}));
}

TEST(Lineage, SurvivesItsJson) {
  const Lineage line{4, {{0, 30}, {4, 40}}};
  const auto read = LineageFromJson(nlohmann::json::parse(LineageToJson(line).dump()));
  EXPECT_EQ(read.value(), line);
}

TEST(Lineage, RefusesWhatIsNoLine) {
  for (const char* text :
       {"3", "{}", R"({"generation":-1,"past":[]})", R"({"generation":1,"past":7})",
        R"({"generation":1,"past":[3]})", R"({"generation":1,"past":[[0,1,2]]})",
        R"({"generation":1,"past":[[0,-1]]})", R"({"generation":1,"past":[[2,10]]})",
        R"({"generation":9,"past":[[3,10],[3,20]]})", R"({"generation":9,"past":[[3,10],[2,5]]})",
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

TEST(Latest, WhatCannotBeReadIsLeftOut) {
  EXPECT_EQ(ParseLatest("step-20"), (Latest{20, 0, {}}));
  EXPECT_EQ(ParseLatest("step-20\nnonsense\n"), (Latest{20, 0, {}}));
  EXPECT_EQ(ParseLatest("step-20\n{\"may_save\":\"x\",\"lineage\":5}\n"), (Latest{20, 0, {}}));
  for (const char* text : {"", "\n", "step-", "../step-10\n", "step-010\n"}) {
    EXPECT_EQ(ParseLatest(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ds::checkpoint
