#include "runtime/config/sections/batch_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/unit/config/goldens.h"

namespace ds::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::nullopt_t kAbsent = std::nullopt;

struct Case {
  GivenBatchSizes given;
  int world_size;
  std::optional<BatchConfig> solved;  // absent: refused
};

bool Same(const BatchConfig& a, const BatchConfig& b) {
  return a.train_batch_size == b.train_batch_size &&
         a.train_micro_batch_size_per_gpu == b.train_micro_batch_size_per_gpu &&
         a.gradient_accumulation_steps == b.gradient_accumulation_steps;
}

// DeepSpeed 0.19.6's outcomes; given and solved are {train, micro, accumulation}.
TEST(SolveBatchSizesTest, AgreesWithDeepSpeed) {
  const Case cases[] = {
      {{32, 16, 1}, 2, {{32, 16, 1}}},
      {{32, 8, 2}, 2, {{32, 8, 2}}},
      {{33, 17, 2}, 2, kAbsent},
      {{32, 18, 1}, 2, kAbsent},
      {{64, kAbsent, kAbsent}, 1, {{64, 64, 1}}},
      {{32, 16, kAbsent}, 2, {{32, 16, 1}}},
      {{32, kAbsent, 1}, 2, {{32, 16, 1}}},
      {{kAbsent, 16, 1}, 2, {{32, 16, 1}}},
      {{1024, 4, kAbsent}, 8, {{1024, 4, 32}}},
      {{1024, kAbsent, 16}, 8, {{1024, 8, 16}}},
      {{kAbsent, 16, kAbsent}, 2, {{32, 16, 1}}},
      {{256, 8, kAbsent}, 16, {{256, 8, 2}}},
      {{10, kAbsent, kAbsent}, 4, kAbsent},
      {{10, 4, kAbsent}, 2, kAbsent},
      {{2, 4, kAbsent}, 1, kAbsent},
      {{kAbsent, kAbsent, 4}, 2, kAbsent},
      {{kAbsent, kAbsent, kAbsent}, 1, kAbsent},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message()
                 << c.given.train.value_or(-1) << " " << c.given.micro.value_or(-1) << " "
                 << c.given.accumulation.value_or(-1) << " on " << c.world_size);
    const StatusOr<BatchConfig> solved = SolveBatchSizes(c.given, c.world_size);
    ASSERT_EQ(solved.ok(), c.solved.has_value());
    EXPECT_TRUE(!c.solved || Same(*solved, *c.solved));
  }
}

std::optional<std::int64_t> Size(const nlohmann::json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

TEST(SolveBatchSizesTest, EqualsTheRecordedAnswers) {
  for (const auto& row : ReadGolden("batch_sizes.json")) {
    SCOPED_TRACE(row.dump());
    const GivenBatchSizes given{Size(row[0]), Size(row[1]), Size(row[2])};
    const StatusOr<BatchConfig> solved = SolveBatchSizes(given, row[3]);
    ASSERT_EQ(solved.ok(), !row[4].is_null());
    if (!solved.ok()) continue;
    EXPECT_TRUE(Same(*solved, BatchConfig{row[4][0], row[4][1], row[4][2]}));
  }
}

std::string Error(const GivenBatchSizes& given, int world_size) {
  const StatusOr<BatchConfig> solved = SolveBatchSizes(given, world_size);
  return solved.ok() ? "solved" : solved.status().message();
}

TEST(SolveBatchSizesTest, NamesTheNumbersAndEveryFix) {
  EXPECT_EQ(Error({32, 18, 1}, 2),
            "train_batch_size 32 is not train_micro_batch_size_per_gpu 18 * "
            "gradient_accumulation_steps 1 * world size 2: set train_batch_size to 36, or "
            "train_micro_batch_size_per_gpu to 16");
  EXPECT_EQ(Error({32, 4, 2}, 2),
            "train_batch_size 32 is not train_micro_batch_size_per_gpu 4 * "
            "gradient_accumulation_steps 2 * world size 2: set train_batch_size to 16, or "
            "train_micro_batch_size_per_gpu to 8, or gradient_accumulation_steps to 4");
  EXPECT_EQ(Error({2, 4, kAbsent}, 1),
            "train_batch_size 2 is not train_micro_batch_size_per_gpu 4 * "
            "gradient_accumulation_steps 0 (derived) * world size 1: set train_batch_size to 4, or "
            "train_micro_batch_size_per_gpu to 2");
}

TEST(SolveBatchSizesTest, EveryFixItNamesSolvesTheEquation) {
  for (std::int64_t train = 1; train <= 40; ++train) {
    for (std::int64_t micro = 1; micro <= 9; ++micro) {
      const std::string message = Error({train, micro, 2}, 3);
      const auto fix = [&](const std::string& name) -> std::optional<std::int64_t> {
        const std::size_t at = message.find(name + " to ");
        if (at == std::string::npos) return std::nullopt;
        return std::stoll(message.substr(at + name.size() + 4));
      };
      if (message == "solved") continue;
      ASSERT_TRUE(SolveBatchSizes({fix("train_batch_size"), micro, 2}, 3).ok()) << message;
      if (const auto value = fix("train_micro_batch_size_per_gpu")) {
        EXPECT_TRUE(SolveBatchSizes({train, value, 2}, 3).ok()) << message;
      }
      if (const auto value = fix("gradient_accumulation_steps")) {
        EXPECT_TRUE(SolveBatchSizes({train, micro, value}, 3).ok()) << message;
      }
    }
  }
}

TEST(SolveBatchSizesTest, RefusesSizesBelowOneByName) {
  EXPECT_EQ(Error({0, 1, 1}, 2), "train_batch_size must be at least 1, not 0");
  EXPECT_EQ(Error({kAbsent, -1, 0}, 2),
            "train_micro_batch_size_per_gpu must be at least 1, not -1");
  EXPECT_EQ(Error({8, 1, 0}, 2), "gradient_accumulation_steps must be at least 1, not 0");
}

TEST(WithTrainBatchSizeTest, KeepsTheMicroBatch) {
  const BatchConfig batch{32, 4, 4};
  EXPECT_TRUE(Same(*WithTrainBatchSize(batch, 8, 2), {8, 4, 1}));
  EXPECT_TRUE(Same(*WithTrainBatchSize(batch, 80, 2), {80, 4, 10}));
  const auto error = [&](std::int64_t train) {
    return WithTrainBatchSize(batch, train, 2).status().message();
  };
  EXPECT_EQ(error(30),
            "train_batch_size 30 is not a multiple of 8 (train_micro_batch_size_per_gpu 4 * world "
            "size 2): use 24 or 32");
  EXPECT_THAT(error(7), HasSubstr(": use 8"));
  EXPECT_THAT(error(0), HasSubstr("must be at least 1, not 0"));
}

TEST(WithMicroBatchSizeTest, KeepsTheAccumulation) {
  const BatchConfig batch{32, 4, 4};
  EXPECT_TRUE(Same(*WithMicroBatchSize(batch, 3, 2), {24, 3, 4}));
  EXPECT_THAT(WithMicroBatchSize(batch, 0, 2).status().message(), HasSubstr("at least 1, not 0"));
  EXPECT_THAT(WithMicroBatchSize(batch, INT64_MAX, 2).status().message(),
              HasSubstr("the batch has more than"));
}

TEST(SolveBatchSizesTest, RefusesProductsThatDoNotFit) {
  constexpr std::int64_t kHuge = INT64_MAX / 2;
  EXPECT_THAT(Error({kAbsent, kHuge, kHuge}, 3), HasSubstr("the batch has more than"));
  EXPECT_THAT(Error({kHuge, kHuge, 3}, 4), HasSubstr("is not train_micro_batch_size_per_gpu"));
  EXPECT_THAT(Error({kHuge, 1, 1}, 1), Not(HasSubstr("solved")));
}

}  // namespace
}  // namespace ds::config
