#include "runtime/optim/groups/base_shapes.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::optim {
namespace {

using ::testing::HasSubstr;

TEST(BaseShapes, AreReadAsMupWritesThem) {
  const auto shapes = ParseBaseShapes(
      "# a comment\n"
      "head.bias:\n- null\n"
      "head.weight:\n    - null\n    - 64\n"
      "'a:b': [8, null]\n"
      "scalar: []\n");
  ASSERT_TRUE(shapes.ok()) << shapes.status().message();
  const BaseShapes expected = {{"head.bias", {std::nullopt}},
                               {"head.weight", {std::nullopt, 64}},
                               {"a:b", {8, std::nullopt}},
                               {"scalar", {}}};
  EXPECT_EQ(*shapes, expected);
  EXPECT_TRUE(ParseBaseShapes("{}\n")->empty());
}

TEST(BaseShapes, RefusesInvalidFilesWithTheLine) {
  const auto message = [](const char* text) { return ParseBaseShapes(text).status().message(); };
  EXPECT_THAT(message("a:\n- x\n"), HasSubstr("line 2: \"x\" is neither a size nor null"));
  EXPECT_THAT(message("a:\n- 0\n"), HasSubstr("line 2"));
  EXPECT_THAT(message("- 4\n"), HasSubstr("line 1"));
  EXPECT_THAT(message("a: 4\n"), HasSubstr("not a list"));
  EXPECT_THAT(message("a: [4\n"), HasSubstr("not a list"));
  EXPECT_THAT(message("a:\n- 4\na:\n- 4\n"), HasSubstr("line 3: a is there twice"));
  EXPECT_THAT(message("nonsense\n"), HasSubstr("line 1"));
}

TEST(BaseShapes, MustBeThoseOfTheModel) {
  const BaseShapes base = {{"w", {2, 4}}, {"b", {2}}};
  EXPECT_TRUE(CheckBaseShapes(base, {{"w", {4, 8}}, {"b", {4}}}).ok());
  EXPECT_TRUE(CheckBaseShapes({{"module.w", {2}}}, {{"w", {4}}}).ok());
  const auto message = [&](const Shapes& shapes) {
    return CheckBaseShapes(base, shapes).message();
  };
  EXPECT_THAT(message({{"w", {4, 8}}, {"c", {4}}}), HasSubstr("no base shape of c"));
  EXPECT_THAT(message({{"w", {4, 8}}}), HasSubstr("the model has no parameter b"));
  EXPECT_THAT(message({{"w", {4}}, {"b", {4}}}), HasSubstr("w has 1 dimensions"));
  EXPECT_THAT(CheckBaseShapes({{"w", {2, 2, 2}}}, {{"w", {4, 4, 4}}}).message(),
              HasSubstr("more than two dimensions of w"));
}

TEST(BaseShapes, SetRatesAsMupDoes) {
  const BaseShapes base = {
      {"w", {2, 4}}, {"b", {2}}, {"head", {std::nullopt, 4}}, {"c", {std::nullopt}}};
  const Shapes shapes = {{"w", {8, 8}}, {"b", {8}}, {"head", {10, 8}}, {"c", {10}}};
  const auto adam = WithMuRates(base, shapes, /*like_sgd=*/false, OneGroup);
  const auto sgd = WithMuRates(base, shapes, /*like_sgd=*/true, OneGroup);
  // A rank may have a part of the parameter: the whole one counts.
  const auto rates = [](const ParameterGrouper& grouper, const char* name) {
    const ParameterGroup group = grouper(0, name, at::empty({2}));
    return std::pair(group.lr_factor, group.weight_decay_factor);
  };
  EXPECT_EQ(rates(adam, "w"), std::pair(0.5, 2.0));
  EXPECT_EQ(rates(adam, "b"), std::pair(1.0, 1.0));
  EXPECT_EQ(rates(adam, "head"), std::pair(1.0, 1.0));
  EXPECT_EQ(rates(sgd, "w"), std::pair(2.0, 0.5));
  EXPECT_EQ(rates(sgd, "b"), std::pair(4.0, 0.25));
  EXPECT_EQ(rates(sgd, "head"), std::pair(2.0, 0.5));
  EXPECT_EQ(rates(sgd, "c"), std::pair(1.0, 1.0));
}

}  // namespace
}  // namespace ds::optim
