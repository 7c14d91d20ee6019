#include "runtime/base/suggest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ds {
namespace {

TEST(EditDistanceTest, CountsEditsAndSwaps) {
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("tarin", "train"), 1);
  EXPECT_EQ(EditDistance("same", "same"), 0);
}

TEST(NearestTest, SuggestsOnlyNearWords) {
  const std::vector<std::string> names = {"train", "resume", "report"};
  EXPECT_EQ(Nearest("trian", names), "train");
  EXPECT_EQ(Nearest("rport", names), "report");
  EXPECT_EQ(Nearest("banana", names), "");
  EXPECT_EQ(Nearest("trane", names), "");
  EXPECT_EQ(Nearest("trane", names, /*most_typos=*/2), "train");
  EXPECT_EQ(DidYouMean("resum", names), "; did you mean 'resume'?");
}

TEST(NearestTest, ResolvesAbbreviatedNames) {
  const std::vector<std::string> names = {"warmup_type", "warmup_num_steps", "train_batch_size",
                                          "train_micro_batch_size_per_gpu", "nvme_path"};
  EXPECT_EQ(Nearest("warmup_steps", names), "warmup_num_steps");
  EXPECT_EQ(Nearest("batch_size", names), "train_batch_size");
  EXPECT_EQ(Nearest("micro_batch_size", names), "train_micro_batch_size_per_gpu");
  EXPECT_EQ(Nearest("nvme", names), "nvme_path");
  EXPECT_EQ(Nearest("size", names), "") << "of what?";
}

}  // namespace
}  // namespace ds
