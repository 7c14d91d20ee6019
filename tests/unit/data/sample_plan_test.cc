#include "runtime/plan/data/sample_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/data/scratch_folder.h"

namespace ds::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SamplePlanTest : public ::testing::Test {
 protected:
  // "first+count" of every sample of documents with these lengths.
  std::vector<std::string> Plan(const std::vector<std::uint64_t>& lengths, bool one_each) const {
    std::string bytes;
    std::uint64_t end = 0;
    for (const std::uint64_t length : lengths) {
      end += length;
      bytes.append(reinterpret_cast<const char*>(&end), sizeof(end));
    }
    const auto index =
        DocumentIndex::Open(folder_.Write("ends", bytes), std::ssize(lengths)).value();
    const SamplePlan plan = SamplePlan::WholeDocuments(index, /*length=*/8, one_each).value();
    std::vector<std::string> samples;
    for (std::int64_t i = 0; i < plan.samples(); ++i) {
      samples.push_back(std::to_string(plan.At(i).first) + "+" + std::to_string(plan.At(i).count));
    }
    return samples;
  }
  ScratchFolder folder_;
};

TEST_F(SamplePlanTest, AStreamIsSplitWhenASampleIsFull) {
  const SamplePlan plan = SamplePlan::Stream(17, 8);
  EXPECT_EQ(plan.samples(), 2);
  EXPECT_EQ(plan.At(1).first, 8);
  EXPECT_EQ(plan.At(1).count, 8);
  EXPECT_EQ(SamplePlan::Stream(16, 8).samples(), 1) << "the last one has no label behind it";
}

TEST_F(SamplePlanTest, AsManyFullDocumentsAsFitAreASample) {
  EXPECT_THAT(Plan({3, 5, 1}, false), ElementsAre("0+8", "8+1"));
  EXPECT_THAT(Plan({3, 4, 2, 6}, false), ElementsAre("0+7", "7+8"));
  EXPECT_THAT(Plan({8, 8}, false), ElementsAre("0+8", "8+8"));
}

TEST_F(SamplePlanTest, SplitsOnlyDocumentsLongerThanASample) {
  EXPECT_THAT(Plan({2, 18, 3, 4}, false), ElementsAre("0+2", "2+8", "10+8", "18+5", "23+4"));
  EXPECT_THAT(Plan({2, 18, 3}, true), ElementsAre("0+2", "2+8", "10+8", "18+2", "20+3"));
}

TEST_F(SamplePlanTest, EachDocumentMayHaveASampleToItself) {
  EXPECT_THAT(Plan({3, 0, 5, 1}, true), ElementsAre("0+3", "3+5", "8+1"));
  EXPECT_THAT(Plan({}, true), ElementsAre());
}

TEST(PackingTest, HasThreeNames) {
  EXPECT_EQ(ParsePacking("stream").value(), Packing::kStream);
  EXPECT_EQ(ParsePacking("whole").value(), Packing::kDocuments);
  EXPECT_EQ(ParsePacking("none").value(), Packing::kNone);
  EXPECT_THAT(ParsePacking("bfd").status().message(), HasSubstr("not one of stream, whole, none"));
}

}  // namespace
}  // namespace ds::data
