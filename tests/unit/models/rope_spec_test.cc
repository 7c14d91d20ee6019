// What is said of two lengths agrees with the frequencies of both.

#include "runtime/plan/model/rope_spec.h"

#include <gtest/gtest.h>

namespace ds::models {
namespace {

using Scaling = RopeSpec::Scaling;

RopeSpec Stretched(Scaling scaling) {
  return {.scaling = scaling,
          .factor = 2.0,
          .original_positions = 16.0,
          .short_factors = {1.0, 1.5},
          .long_factors = {2.0, 5.0}};
}

TEST(RopeSpecTest, DistinguishesLengthsByTheirFrequencies) {
  for (const Scaling scaling : {Scaling::kNone, Scaling::kLinear, Scaling::kDynamic, Scaling::kYarn,
                                Scaling::kLongRope, Scaling::kLlama3}) {
    const RopeSpec rope = Stretched(scaling);
    for (const std::int64_t a : {1, 15, 16, 17, 18, 40}) {
      for (const std::int64_t b : {1, 15, 16, 17, 18, 40}) {
        EXPECT_EQ(HaveSameFrequencies(rope, a, b),
                  RopeFrequencies(rope, 4, a) == RopeFrequencies(rope, 4, b))
            << static_cast<int>(scaling) << ": " << a << ", " << b;
      }
    }
  }
}

}  // namespace
}  // namespace ds::models
