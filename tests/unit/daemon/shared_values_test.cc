#include "daemon/logs/shared_values.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ds::daemon {
namespace {

class SharedValuesTest : public ::testing::Test {
 protected:
  SharedValues::Answer Note() {
    return [this](const std::string& value) { answers_.push_back(value); };
  }
  SharedValues values_;
  std::vector<std::string> answers_;
};

TEST_F(SharedValuesTest, AQuestionIsAnsweredOnceNowOrLater) {
  ASSERT_TRUE(values_.Put("a", "1").ok());
  values_.Ask(0, "a", Note());
  EXPECT_EQ(answers_, (std::vector<std::string>{"1"}));
  values_.Ask(0, "b", Note());
  values_.Ask(1, "b", Note());
  EXPECT_EQ(answers_.size(), 1u);
  ASSERT_TRUE(values_.Put("b", "2").ok());
  EXPECT_EQ(answers_, (std::vector<std::string>{"1", "2", "2"}));
  ASSERT_TRUE(values_.Put("b", "3").ok());
  EXPECT_EQ(answers_.size(), 3u);
}

TEST_F(SharedValuesTest, TheFirstValueOfAKeyStays) {
  ASSERT_TRUE(values_.Put("a", "1").ok());
  ASSERT_TRUE(values_.Put("a", "2").ok());
  values_.Ask(0, "a", Note());
  EXPECT_EQ(answers_, (std::vector<std::string>{"1"}));
}

TEST_F(SharedValuesTest, DoesNotAnswerEndedRanks) {
  values_.Ask(0, "a", Note());
  values_.Forget(0);
  ASSERT_TRUE(values_.Put("a", "1").ok());
  EXPECT_TRUE(answers_.empty());
}

TEST_F(SharedValuesTest, TooMuchIsRefused) {
  const std::string mebibyte(std::size_t{1} << 20, 'x');
  Status status;
  for (int i = 0; i < 64 && status.ok(); ++i) status = values_.Put(std::to_string(i), mebibyte);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ds::daemon
