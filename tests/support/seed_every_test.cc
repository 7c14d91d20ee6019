// LibTorch starts a C++ program's random numbers from a seed that nobody knows. Each test gets the
// same ones every time, whatever ran before it.

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace ds::testing {
namespace {

class SeedEveryTest : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& /*test*/) override { at::manual_seed(0); }
};

// GoogleTest owns the listener.
[[maybe_unused]] const bool registered = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new SeedEveryTest);
  return true;
}();

}  // namespace
}  // namespace ds::testing
