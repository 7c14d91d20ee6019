#include "runtime/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace ds {
namespace {

enum class Fault { kTheirs, kOurs };

TEST(OutcomeTest, IsGoodUnlessItHasAFailure) {
  EXPECT_TRUE(Outcome<Fault>().ok());
  const Outcome<Fault> bad = Fault::kOurs;
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.failure(), Fault::kOurs);
}

TEST(ResultTest, HasAValueOrAFailure) {
  Result<std::unique_ptr<std::string>, Fault> good = std::make_unique<std::string>("it");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ((*good)->size(), 2u);
  const std::unique_ptr<std::string> taken = *std::move(good);
  EXPECT_EQ(*taken, "it");
  const Result<std::string, Fault> bad = Fault::kTheirs;
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.failure(), Fault::kTheirs);
}

// A value and a failure may be of one type.
TEST(ResultTest, DistinguishesAFailureFromAValueOfTheSameKind) {
  const Result<int, std::string> value = 3;
  EXPECT_EQ(*value, 3);
  const Result<std::string, Fault> text = std::string("word");
  EXPECT_EQ(text->size(), 4u);
}

}  // namespace
}  // namespace ds
