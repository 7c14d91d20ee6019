#include "runtime/checkpoint_format/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>

#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint_format/file_names.h"
#include "tests/support/program.h"
#include "tests/support/scripted_file_system.h"
#include "tests/unit/checkpoint/sample_checkpoint.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;
using ds::testing::FileCall;
using ds::testing::kAskTheSystem;
using ds::testing::ScriptedFileSystem;
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

TEST_F(VerifyTest, ATruncatedFileNamesTheAffectedTensor) {
  fs::resize_file(checkpoint_ / "rank-00001.bin", 8192 + 39);
  const VerifyReport report = VerifyCheckpoint(checkpoint_).value();
  ASSERT_THAT(report.damages, SizeIs(1));
  EXPECT_EQ(report.damages[0].file, "rank-00001.bin");
  EXPECT_EQ(report.damages[0].tensor, "bias");
  EXPECT_THAT(report.damages[0].reason, HasSubstr("truncated"));
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

TEST_F(VerifyTest, IgnoresOtherFolders) {
  EXPECT_EQ(VerifyCheckpoint(folder_.path()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(VerifyCheckpoint(folder_.path() / "nowhere").status().code(), StatusCode::kNotFound);
}

// Errnos that come when a file server, a host or this process has trouble.
constexpr int kTroubles[] = {EAGAIN, EIO,    ESTALE, ETIMEDOUT, EACCES,    EPERM,
                             EMFILE, ENFILE, ENOMEM, ENOTCONN,  EHOSTDOWN, ENODEV};

// Answers one call about the file of that name with an errno.
ScriptedFileSystem FailOn(FileCall::Kind kind, const std::string& file, int error) {
  return ScriptedFileSystem([=](const FileCall& call) {
    return call.kind == kind && fs::path(call.path).filename() == file ? error : kAskTheSystem;
  });
}

TEST_F(VerifyTest, AnUnreadableFileIsNotDamaged) {
  for (const int error : kTroubles) {
    for (const FileCall::Kind kind : {FileCall::Kind::kOpen, FileCall::Kind::kRead}) {
      for (const char* file : {"rank-00001.bin", kManifestFile}) {
        ScriptedFileSystem system = FailOn(kind, file, error);
        const auto report = VerifyCheckpoint(checkpoint_, system);
        EXPECT_EQ(report.status().code(), StatusCode::kUnavailable) << error;
        EXPECT_THAT(report.status().message(), HasSubstr("step-20"));
        EXPECT_THAT(report.status().message(), HasSubstr(file));
      }
    }
  }
}

TEST_F(VerifyTest, AFileThatIsNotThereIsADamage) {
  for (const int error : {ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, ENXIO}) {
    ScriptedFileSystem system = FailOn(FileCall::Kind::kOpen, "rank-00001.bin", error);
    const VerifyReport report = VerifyCheckpoint(checkpoint_, system).value();
    ASSERT_THAT(report.damages, SizeIs(1));
    EXPECT_EQ(report.damages[0].file, "rank-00001.bin");
  }
}

TEST_F(VerifyTest, AProvenDamageCountsMoreThanAFileThatCannotBeReadNow) {
  FlipBit(checkpoint_ / "rank-00000.bin", 0);
  ScriptedFileSystem system = FailOn(FileCall::Kind::kOpen, "rank-00001.bin", EIO);
  const VerifyReport report = VerifyCheckpoint(checkpoint_, system).value();
  ASSERT_THAT(report.damages, SizeIs(1));
  EXPECT_EQ(report.damages[0].file, "rank-00000.bin");
}

// Another process's lease on a file makes open(2) say EAGAIN.
TEST_F(VerifyTest, ALeasedFileIsNotDamaged) {
  std::signal(SIGIO, SIG_IGN);  // the kernel asks for the lease back
  const UniqueFd lease(::open((checkpoint_ / "rank-00000.bin").c_str(), O_RDWR | O_CLOEXEC));
  if (::fcntl(lease.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "no leases here";
  EXPECT_EQ(VerifyCheckpoint(checkpoint_).status().code(), StatusCode::kUnavailable);
  ASSERT_EQ(::fcntl(lease.get(), F_SETLEASE, F_UNLCK), 0);
  EXPECT_TRUE(VerifyCheckpoint(checkpoint_).value().ok());
}

}  // namespace
}  // namespace ds::checkpoint
