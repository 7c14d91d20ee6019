#include "runtime/models/batch.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace ds::models {
namespace {

using ::testing::HasSubstr;

TEST(Batch, TensorsAreFoundByName) {
  const Batch batch{{"labels", at::zeros({3, 2})}, {"tokens", at::zeros({3, 4})}};
  EXPECT_EQ(FindTensor(batch, "tokens").size(1), 4);
  EXPECT_FALSE(FindTensor(batch, "mask").defined());
  EXPECT_EQ(CountSamples(batch), 3);
  EXPECT_EQ(CountSamples({}), 0);
}

TEST(Batch, ANameThatTheModelDoesNotTakeIsRefused) {
  const Batch batch{{"label", at::zeros({1})}};
  std::string message;
  try {
    CheckNames(batch, std::array<std::string_view, 2>{"tokens", "labels"});
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  }
  EXPECT_THAT(message,
              HasSubstr("the model has no input \"label\" of a batch; did you mean 'labels'?"));
}

}  // namespace
}  // namespace ds::models
