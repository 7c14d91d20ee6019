#include "runtime/checkpoint/format/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/checkpoint/format/file_names.h"
#include "tests/support/program.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;
using ds::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class VerifyTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  fs::path checkpoint_ = CommitSample(folder_.path(), 20);
};

TEST_F(VerifyTest, AGoodCheckpointIsGood) {
  const VerifyReport report = VerifyCheckpoint(checkpoint_).value();
  EXPECT_THAT(report.damages, IsEmpty());
  EXPECT_EQ(report.step, 20);
  EXPECT_EQ(report.tensors, 2U);
  EXPECT_EQ(report.data_bytes, 3010 * sizeof(float));
}

TEST_F(VerifyTest, AFlippedBitNamesFileAndTensor) {
  FlipBit(checkpoint_ / "rank-00001.bin", 2);
  const VerifyReport report = VerifyCheckpoint(checkpoint_).value();
  ASSERT_THAT(report.damages, SizeIs(1));
  EXPECT_EQ(report.damages[0].file, "rank-00001.bin");
  EXPECT_EQ(report.damages[0].tensor, "weight");
  EXPECT_THAT(Describe(report.damages[0]), HasSubstr("checksum"));
}

TEST_F(VerifyTest, EveryDamagedTensorIsNamed) {
  FlipBit(checkpoint_ / "rank-00000.bin", 4399);
  FlipBit(checkpoint_ / "rank-00001.bin", 8192 + 39);  // the last byte of "bias"
  const VerifyReport report = VerifyCheckpoint(checkpoint_).value();
  ASSERT_THAT(report.damages, SizeIs(2));
  EXPECT_EQ(report.damages[0].tensor, "weight");
  EXPECT_EQ(report.damages[1].tensor, "bias");
}

TEST_F(VerifyTest, ATruncatedFileNamesTheTensorThatIsCut) {
  fs::resize_file(checkpoint_ / "rank-00001.bin", 8192 + 39);
  const VerifyReport report = VerifyCheckpoint(checkpoint_).value();
  ASSERT_THAT(report.damages, SizeIs(1));
  EXPECT_EQ(report.damages[0].file, "rank-00001.bin");
  EXPECT_EQ(report.damages[0].tensor, "bias");
  EXPECT_THAT(report.damages[0].reason, HasSubstr("cut"));
}

TEST_F(VerifyTest, AMissingFileIsNamed) {
  fs::remove(checkpoint_ / "rank-00000.bin");
  const VerifyReport report = VerifyCheckpoint(checkpoint_).value();
  ASSERT_THAT(report.damages, SizeIs(1));
  EXPECT_EQ(report.damages[0].file, "rank-00000.bin");
}

TEST_F(VerifyTest, AFolderInPlaceOfAFileIsNamed) {
  fs::remove(checkpoint_ / "rank-00000.bin");
  fs::create_directory(checkpoint_ / "rank-00000.bin");
  EXPECT_THAT(VerifyCheckpoint(checkpoint_).value().damages, SizeIs(1));
}

TEST_F(VerifyTest, AChangedManifestIsNamed) {
  FlipBit(checkpoint_ / kManifestFile, 60);
  const VerifyReport report = VerifyCheckpoint(checkpoint_).value();
  ASSERT_THAT(report.damages, SizeIs(1));
  EXPECT_EQ(report.damages[0].file, kManifestFile);
}

TEST_F(VerifyTest, AFolderNamedForAnotherStepIsNoticed) {
  fs::rename(checkpoint_, folder_.path() / "step-30");
  const VerifyReport report = VerifyCheckpoint(folder_.path() / "step-30").value();
  ASSERT_THAT(report.damages, SizeIs(1));
  EXPECT_THAT(report.damages[0].reason, HasSubstr("step 20"));
}

TEST_F(VerifyTest, WhatIsNoCheckpointIsNotFound) {
  EXPECT_EQ(VerifyCheckpoint(folder_.path()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(VerifyCheckpoint(folder_.path() / "nowhere").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace ds::checkpoint
