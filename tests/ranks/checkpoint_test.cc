// Saving with one world and loading with another: every way of holding the state, into every other.

#include "runtime/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/verify.h"
#include "tests/ranks/flat_tensors.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;
using ds::testing::RunRanks;
using ds::testing::TemporaryFolder;
using ::testing::HasSubstr;

const std::vector<TensorSpec> kSpecs = {
    {"wte.weight", {37, 12}},   {"wte.weight/exp_avg", {37, 12}},
    {"h.0.attn.bias", {5}},     {"scalar", {}},
    {"none", {0, 4}},           {"half", {3, 2, 8}, at::kBFloat16},
    {"counts", {9}, at::kLong},
};

struct World {
  Holding holding;
  int size;
};

void Save(const fs::path& root, int step, World world, int salt) {
  RunRanks(world.size, [&](comm::Communicator& comm) {
    FlatTensors part(kSpecs, world.holding, comm.rank(), comm.size());
    part.Fill(salt);
    Stateful* const parts[] = {&part};
    const auto saved = SaveCheckpoint({.root = root, .step = step}, parts, comm);
    EXPECT_TRUE(saved.ok()) << saved.status().message();
  });
}

void LoadAndExpect(const fs::path& directory, World world, int salt) {
  RunRanks(world.size, [&](comm::Communicator& comm) {
    FlatTensors part(kSpecs, world.holding, comm.rank(), comm.size());
    Stateful* const parts[] = {&part};
    const Status loaded = LoadCheckpoint(directory, parts, comm);
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    part.ExpectFilled(salt);
  });
}

TEST(CheckpointRanks, AnyWorldLoadsCheckpointsOfAnyOther) {
  const TemporaryFolder folder;
  const std::vector<World> worlds = {{Holding::kReplicated, 1}, {Holding::kReplicated, 3},
                                     {Holding::kFlatShards, 2}, {Holding::kFlatShards, 5},
                                     {Holding::kColumns, 2},    {Holding::kColumns, 3}};
  for (std::size_t from = 0; from < worlds.size(); ++from) {
    const int step = static_cast<int>(from);
    Save(folder.path(), step, worlds[from], /*salt=*/step);
    const fs::path directory = folder.path() / ("step-" + std::to_string(step));
    EXPECT_TRUE(VerifyCheckpoint(directory).value().ok());
    for (const World& to : worlds) LoadAndExpect(directory, to, /*salt=*/step);
  }
}

TEST(CheckpointRanks, ReplicatedStateIsWrittenOnce) {
  const TemporaryFolder folder;
  Save(folder.path(), 1, {Holding::kReplicated, 1}, 0);
  Save(folder.path(), 2, {Holding::kReplicated, 4}, 0);
  EXPECT_EQ(VerifyCheckpoint(folder.path() / "step-1").value().data_bytes,
            VerifyCheckpoint(folder.path() / "step-2").value().data_bytes);
}

TEST(CheckpointRanks, ASaveRecordsItsParent) {
  const TemporaryFolder folder;
  RunRanks(2, [&](comm::Communicator& comm) {
    FlatTensors part(kSpecs, Holding::kFlatShards, comm.rank(), comm.size());
    part.Fill(1);
    Stateful* const parts[] = {&part};
    Lineage first;
    for (const int step : {10, 20}) {
      EXPECT_TRUE(
          SaveCheckpoint({.root = folder.path(), .step = step, .lineage = &first}, parts, comm)
              .ok());
    }
    Lineage second{.generation = 2, .past = {}};
    EXPECT_TRUE(LoadCheckpoint(folder.path() / "step-10", parts, comm, &second).ok());
    EXPECT_TRUE(
        SaveCheckpoint({.root = folder.path(), .step = 15, .lineage = &second}, parts, comm).ok());
    EXPECT_EQ(second, (Lineage{2, {{0, 10}, {2, 15}}}));
  });
  EXPECT_EQ(ReadManifest(folder.path() / "step-10").value().lineage, (Lineage{0, {}}));
  EXPECT_EQ(ReadManifest(folder.path() / "step-20").value().lineage, (Lineage{0, {{0, 10}}}));
  EXPECT_EQ(ReadManifest(folder.path() / "step-15").value().lineage, (Lineage{2, {{0, 10}}}));
}

TEST(CheckpointRanks, ASecondSaveOfTheSameStepReplacesTheFirst) {
  const TemporaryFolder folder;
  Save(folder.path(), 4, {Holding::kFlatShards, 3}, 1);
  Save(folder.path(), 4, {Holding::kFlatShards, 2}, 2);
  EXPECT_FALSE(fs::exists(folder.path() / "step-4/rank-00002.bin"));
  LoadAndExpect(folder.path() / "step-4", {Holding::kReplicated, 1}, 2);
}

// Loads into other tensors than were saved and returns the message, the same on every rank.
std::string LoadError(const fs::path& directory, const std::vector<TensorSpec>& specs) {
  std::vector<std::string> messages(2);
  RunRanks(2, [&](comm::Communicator& comm) {
    FlatTensors part(specs, Holding::kFlatShards, comm.rank(), comm.size());
    Stateful* const parts[] = {&part};
    messages[comm.rank()] = LoadCheckpoint(directory, parts, comm).message();
  });
  EXPECT_EQ(messages[0], messages[1]);
  return messages[0];
}

TEST(CheckpointRanks, AnotherModelIsRefusedByTensorName) {
  const TemporaryFolder folder;
  Save(folder.path(), 1, {Holding::kFlatShards, 2}, 0);
  const fs::path directory = folder.path() / "step-1";

  std::vector<TensorSpec> specs = kSpecs;
  specs.push_back({"lm_head.weight", {4}});
  EXPECT_THAT(LoadError(directory, specs), HasSubstr("no tensor 'lm_head.weight'"));
  EXPECT_THAT(LoadError(directory, specs), HasSubstr("it is older than buffers in checkpoints"));
  specs = kSpecs;
  specs.erase(specs.begin() + 1);
  EXPECT_THAT(LoadError(directory, specs), HasSubstr("holds tensor 'wte.weight/exp_avg'"));
  specs = kSpecs;
  specs[0].shape = {12, 37};
  EXPECT_THAT(LoadError(directory, specs), HasSubstr("its shape is [12, 37]"));
  specs = kSpecs;
  specs[2].dtype = at::kDouble;
  EXPECT_THAT(LoadError(directory, specs), HasSubstr("its dtype is float64"));
}

TEST(CheckpointRanks, DamageIsNoticedWhileLoading) {
  const TemporaryFolder folder;
  Save(folder.path(), 1, {Holding::kFlatShards, 2}, 0);
  const fs::path directory = folder.path() / "step-1";
  fs::resize_file(directory / "rank-00001.bin", 100);
  EXPECT_THAT(LoadError(directory, kSpecs), HasSubstr("rank-00001.bin"));
  fs::remove(directory / "rank-00001.bin");
  EXPECT_THAT(LoadError(directory, kSpecs), HasSubstr("rank-00001.bin"));
  fs::remove(directory / "manifest.json");
  EXPECT_THAT(LoadError(directory, kSpecs), HasSubstr("manifest.json"));
}

TEST(CheckpointRanks, DetectsAChangedByteOfAFullShardWhileLoading) {
  const TemporaryFolder folder;
  Save(folder.path(), 1, {Holding::kFlatShards, 2}, 0);
  const fs::path directory = folder.path() / "step-1";
  {
    std::FILE* const file = std::fopen((directory / "rank-00000.bin").c_str(), "r+b");
    ASSERT_NE(file, nullptr);
    std::fputc(0x55, file);
    std::fclose(file);
  }
  EXPECT_THAT(LoadError(directory, kSpecs), HasSubstr("tensor 'wte.weight'"));
}

}  // namespace
}  // namespace ds::checkpoint
