// A drive that fails under one rank is an error of the call on every rank, between steps too, and
// nobody waits for anybody.

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/base/isa_probe.h"
#include "runtime/engine/gathered_parameters.h"
#include "runtime/engine/tensor_access.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Takes the bytes of files without names that this process has in the folder: reads end too early.
int TruncateFilesIn(const fs::path& folder) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    if (gone || !target.starts_with(folder.string())) continue;
    if (::ftruncate(std::atoi(entry.path().filename().c_str()), 0) == 0) ++count;
  }
  return count;
}

TEST(FailingDrive, UnderOneRankIsAnErrorOfEveryRank) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    [[maybe_unused]] static const IsaReport isa = ProbeAndCapIsa();
    const testing::TemporaryFolder drive;  // this rank's
    const TinyRun run{.stage = 2,
                      .precision = Precision::kBf16,
                      .shape = {.vocabulary = 300, .width = 48, .layers = 2}};
    config::DsConfig config = TinyConfig(run);
    config.aio.block_size = 4096;
    config.zero_optimization.offload_optimizer = {.device = config::OffloadDevice::kNvme,
                                                  .nvme_path = {drive.path().string()}};
    const auto engine =
        Engine::create(MakeTinyModel(run.shape, run.dtype()), config, {.world = &world}).value();
    TrainTiny(*engine, run, 1);
    if (world.rank() == 1) {
      ASSERT_GT(TruncateFilesIn(drive.path()), 0);
    }
    world.Barrier();
    TensorAccess access(*engine);
    const auto read = access.GetFullFp32Param("table");
    EXPECT_THAT(read.status().message(), HasSubstr("ends too early"));
    const at::Tensor values = at::ones({300, 48});
    EXPECT_THAT(access.SetFullFp32Param("table", values).message(), HasSubstr("ends too early"));
    const Status kept =
        engine::WithGatheredParameters(*engine, {"table"}, 0, [] { return OkStatus(); });
    EXPECT_THAT(kept.message(), HasSubstr("ends too early"));
  });
}

}  // namespace
}  // namespace ds::tests
