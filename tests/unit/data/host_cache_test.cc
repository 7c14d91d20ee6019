#include "runtime/plan/data/host_cache.h"

#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <thread>

#include "runtime/base/files.h"
#include "tests/support/scripted_file_system.h"
#include "tests/unit/data/scratch_folder.h"

namespace ds::data {
namespace {

namespace fs = std::filesystem;
using Manifest = HostCache::Json;

bool IsComplete(const HostCache::Folder& folder) {
  const auto text = ReadFile(folder.path / "text");
  return text.ok() && *text == folder.manifest.value("text", "");
}

// As NFS with local_lock and Lustre with localflock have it: every host is told that it has the
// lock. The second host is half way when the first one is done.
TEST(HostCacheTest, HostsBetweenWhichLocksDoNotHoldLeaveEachOthersFoldersAlone) {
  const ScratchFolder folder;
  testing::ScriptedFileSystem unlocked([](const testing::FileCall& call) {
    const bool is_lock = call.kind == testing::FileCall::Kind::kLock;
    return is_lock ? testing::kPretend : testing::kAskTheSystem;
  });
  const auto find = [&](const char* host, const HostCache::Make& make) {
    return HostCache(folder.path() + "/cache", unlocked, host)
        .FindOrMake(Manifest{{"of", "both"}}, IsComplete, make);
  };
  std::latch second_is_half_way(1), first_is_done(1);
  std::optional<StatusOr<HostCache::Folder>> second;
  std::jthread second_host;
  const auto first = find("first", [&](const fs::path& made) -> StatusOr<Manifest> {
    DS_RETURN_IF_ERROR(WriteFileAtomically(made / "text", "the first one's"));
    second_host = std::jthread([&] {
      second = find("second", [&](const fs::path& own) -> StatusOr<Manifest> {
        DS_RETURN_IF_ERROR(WriteFileAtomically(own / "text", "half"));
        second_is_half_way.count_down();
        first_is_done.wait();
        DS_RETURN_IF_ERROR(WriteFileAtomically(own / "text", "the second one's"));
        return Manifest{{"text", "the second one's"}};
      });
    });
    second_is_half_way.wait();
    return Manifest{{"text", "the first one's"}};
  });
  EXPECT_TRUE(first.ok() && IsComplete(*first));
  first_is_done.count_down();
  second_host.join();
  ASSERT_TRUE(second && second->ok());
  EXPECT_TRUE(IsComplete(**second));
  EXPECT_TRUE((*second)->was_there);
  EXPECT_TRUE(IsComplete(*first));
}

class HostCacheLocationTest : public ::testing::Test {
 protected:
  StatusOr<HostCache::Folder> Find() {
    return HostCache(folder_.path() + "/cache")
        .FindOrMake(Manifest{{"of", "these"}}, IsComplete,
                    [](const fs::path& made) -> StatusOr<Manifest> {
                      DS_RETURN_IF_ERROR(WriteFileAtomically(made / "text", "tokens"));
                      return Manifest{{"text", "tokens"}};
                    });
  }
  const ScratchFolder folder_;
};

TEST_F(HostCacheLocationTest, ADamagedEntryOfOursIsMadeAnew) {
  const fs::path path = Find()->path;
  ASSERT_TRUE(WriteFileAtomically(path / "text", "damaged").ok());
  const auto found = Find();
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_FALSE(found->was_there);
  EXPECT_TRUE(IsComplete(*found));
}

TEST_F(HostCacheLocationTest, AFolderOfThatNameWithoutAMarkIsNotRemoved) {
  const fs::path path = Find()->path;
  fs::remove_all(path);
  fs::create_directory(path);
  ASSERT_TRUE(WriteFileAtomically(path / "thesis.txt", "years").ok());
  const auto found = Find();
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.status().message().find("move it away"), std::string::npos)
      << found.status().message();
  EXPECT_TRUE(fs::exists(path / "thesis.txt"));
}

TEST_F(HostCacheLocationTest, NorIsALinkWithTheNameOfAnEntry) {
  const fs::path path = Find()->path;
  const fs::path elsewhere = folder_.path() + "/elsewhere";
  fs::rename(path, elsewhere);
  fs::create_directory_symlink(elsewhere, path);
  ASSERT_TRUE(WriteFileAtomically(path / "text", "damaged").ok());
  EXPECT_FALSE(Find().ok());
  EXPECT_TRUE(fs::is_symlink(path));
  EXPECT_TRUE(fs::exists(elsewhere / "text"));
}

}  // namespace
}  // namespace ds::data
