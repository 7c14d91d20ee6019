#include "runtime/offload/file_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tests/support/program.h"
#include "tests/support/scripted_file_system.h"

namespace ds::offload {
namespace {

using ds::testing::FileCall;
using ds::testing::kAskTheSystem;
using ds::testing::ScriptedFileSystem;
using ds::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kPage = AlignedPool::kPage;

std::unique_ptr<FileTier> OpenTier(const TierOptions& options) {
  StatusOr<std::unique_ptr<FileTier>> tier = FileTier::Open(options);
  EXPECT_TRUE(tier.ok()) << tier.status().message();
  return *std::move(tier);
}

void Fill(const AlignedBuffer& buffer, int seed) {
  for (std::size_t i = 0; i < buffer.bytes().size(); ++i) {
    buffer.bytes()[i] = std::byte(i * 13 + i / 4096 + static_cast<std::size_t>(seed));
  }
}

Status WriteSeed(FileTier& tier, const Extent& extent, int seed) {
  const AlignedBuffer buffer = tier.pool().Take(extent.bytes());
  Fill(buffer, seed);
  return tier.Wait(tier.Write(extent, 0, buffer, extent.bytes()));
}

// True where the extent holds what WriteSeed has written.
bool HoldsSeed(FileTier& tier, const Extent& extent, int seed) {
  const AlignedBuffer expected = tier.pool().Take(extent.bytes());
  const AlignedBuffer found = tier.pool().Take(extent.bytes());
  Fill(expected, seed);
  const Status read = tier.Wait(tier.Read(extent, 0, found, extent.bytes()));
  EXPECT_TRUE(read.ok()) << read.message();
  return std::memcmp(expected.bytes().data(), found.bytes().data(),
                     static_cast<std::size_t>(extent.bytes())) == 0;
}

TEST(FileTier, KeepsWrittenData) {
  const TemporaryFolder folder;
  const auto tier = OpenTier({.folders = {folder.path()}, .io = {.block_bytes = 8192}});
  const Extent one = *tier->Allocate(100'000), two = *tier->Allocate(5);
  EXPECT_TRUE(WriteSeed(*tier, one, 1).ok());
  EXPECT_TRUE(WriteSeed(*tier, two, 2).ok());
  EXPECT_TRUE(HoldsSeed(*tier, one, 1));
  EXPECT_TRUE(HoldsSeed(*tier, two, 2));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(FileTier, ReadsRangesOfAnExtent) {
  const TemporaryFolder folder;
  const auto tier = OpenTier({.folders = {folder.path()}, .io = {.block_bytes = kPage}});
  const Extent extent = *tier->Allocate(10 * kPage);
  ASSERT_TRUE(WriteSeed(*tier, extent, 3).ok());
  const AlignedBuffer whole = tier->pool().Take(10 * kPage), part = tier->pool().Take(3 * kPage);
  Fill(whole, 3);
  ASSERT_TRUE(tier->Wait(tier->Read(extent, 4 * kPage, part, 3 * kPage)).ok());
  EXPECT_TRUE(std::ranges::equal(part.bytes(), whole.bytes().subspan(4 * kPage, 3 * kPage)));
}

TEST(FileTier, StripesOverSeveralDrives) {
  const TemporaryFolder folders[3];
  const auto tier = OpenTier({.folders = {folders[0].path(), folders[1].path(), folders[2].path()},
                              .io = {.block_bytes = kPage}});
  const Extent before = *tier->Allocate(kPage);
  const Extent extent = *tier->Allocate(32 * kPage);
  ASSERT_TRUE(WriteSeed(*tier, extent, 4).ok());
  ASSERT_TRUE(WriteSeed(*tier, before, 5).ok());
  EXPECT_TRUE(HoldsSeed(*tier, extent, 4));
  for (const ScratchFile& file : tier->files()) EXPECT_GE(file.size(), 11 * kPage);
}

TEST(FileTier, ReusesFreedSpace) {
  const TemporaryFolder folder;
  const auto tier = OpenTier({.folders = {folder.path()}, .io = {.block_bytes = kPage}});
  {
    const Extent one = *tier->Allocate(2 * kPage);
    const Extent two = *tier->Allocate(3 * kPage);
  }
  const std::int64_t size = tier->files()[0].size();
  const Extent both = *tier->Allocate(5 * kPage);
  EXPECT_EQ(tier->files()[0].size(), size) << "two neighbours have become one";
  EXPECT_FALSE(both.fresh());
}

TEST(FileTier, ReadsZerosBeforeAnyWrite) {
  const TemporaryFolder folder;
  const auto tier = OpenTier({.folders = {folder.path()}});
  const Extent extent = *tier->Allocate(64 * kPage);
  ASSERT_TRUE(extent.fresh());
  const AlignedBuffer buffer = tier->pool().Take(64 * kPage);
  Fill(buffer, 6);
  ASSERT_TRUE(tier->Wait(tier->Read(extent, 0, buffer, 64 * kPage)).ok());
  EXPECT_TRUE(std::ranges::all_of(buffer.bytes(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(FileTier, ReusesTheMemoryOfWrittenData) {
  const TemporaryFolder folder;
  const auto tier = OpenTier({.folders = {folder.path()}});
  const Extent extent = *tier->Allocate(8 * kPage);
  AlignedBuffer buffer = tier->TakeBuffer(8 * kPage);
  const std::byte* const memory = buffer.bytes().data();
  Fill(buffer, 8);
  ASSERT_TRUE(tier->Wait(tier->WriteBehind(extent, 0, std::move(buffer), 8 * kPage)).ok());
  EXPECT_EQ(tier->TakeBuffer(8 * kPage).bytes().data(), memory);
  EXPECT_TRUE(HoldsSeed(*tier, extent, 8));
}

// Answers with an error from the moment it is told to.
class FailingSystem {
 public:
  explicit FailingSystem(FileCall::Kind kind, int error)
      : system_([this, kind, error](const FileCall& call) {
          return fails && call.kind == kind ? error : kAskTheSystem;
        }) {}

  TierOptions options(const std::filesystem::path& folder) {
    return {.folders = {folder}, .queue = QueueChoice::kThreads, .system = system_};
  }

  bool fails = false;

 private:
  ScriptedFileSystem system_;
};

TEST(FileTier, NamesFailedWrites) {
  const TemporaryFolder folder;
  FailingSystem failing(FileCall::Kind::kWrite, ENOSPC);
  const auto tier = OpenTier(failing.options(folder.path()));
  const Extent extent = *tier->Allocate(8192);
  failing.fails = true;
  const Status written = WriteSeed(*tier, extent, 1);
  EXPECT_EQ(written.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(written.message(),
              AllOf(HasSubstr("writing 8.00 KiB at "), HasSubstr(folder.path().string()),
                    HasSubstr("on host "), HasSubstr("No space left"), HasSubstr(" free")));
}

TEST(FileTier, NamesFailedReads) {
  const TemporaryFolder folder;
  FailingSystem failing(FileCall::Kind::kRead, EIO);
  const auto tier = OpenTier(failing.options(folder.path()));
  const Extent extent = *tier->Allocate(8192);
  failing.fails = true;
  const AlignedBuffer buffer = tier->pool().Take(8192);
  const Status read = tier->Wait(tier->Read(extent, 0, buffer, 8192));
  EXPECT_THAT(read.message(), AllOf(HasSubstr("reading 8.00 KiB"), HasSubstr("Input/output")));
}

TEST(FileTier, IsRefusedWhereItsFileCannotBeReadBack) {
  const TemporaryFolder folder;
  FailingSystem failing(FileCall::Kind::kRead, EINVAL);
  failing.fails = true;
  const auto tier = FileTier::Open(failing.options(folder.path()));
  ASSERT_FALSE(tier.ok());
  EXPECT_THAT(tier.status().message(), HasSubstr("Invalid argument"));
}

TEST(FileTier, ContinuesAfterAFullDisk) {
  const TemporaryFolder folder;
  FailingSystem failing(FileCall::Kind::kAllocate, ENOSPC);
  const auto tier = OpenTier(failing.options(folder.path()));
  failing.fails = true;
  EXPECT_FALSE(tier->Allocate(1 << 20).ok());
  failing.fails = false;
  const Extent extent = *tier->Allocate(1 << 20);
  EXPECT_TRUE(WriteSeed(*tier, extent, 7).ok());
  EXPECT_TRUE(HoldsSeed(*tier, extent, 7));
}

}  // namespace
}  // namespace ds::offload
