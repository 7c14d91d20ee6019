// Ranks that are bound to cores keep all of their threads there: those that update, those that
// serve a drive, and those that talk to other ranks. So what they touch first lies in their node's
// memory.

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <set>

#include "runtime/base/files.h"
#include "tests/e2e/dsrun.h"
#include "tests/places.h"
#include "tests/support/requirement.h"

namespace ds::testing {
namespace {

namespace fs = std::filesystem;

// "Cpus_allowed_list:\t0-3" of each thread of the process.
std::multiset<std::string> ListCoresOfThreads(pid_t pid) {
  std::multiset<std::string> cores;
  for (const auto& thread : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    const auto status = ReadFile(thread.path() / "status");
    if (!status.ok()) continue;  // it has ended
    const auto start = status->find("Cpus_allowed_list:");
    cores.insert(status->substr(start, status->find('\n', start) - start));
  }
  return cores;
}

std::map<int, pid_t> FindRanks(const fs::path& run_dir) {
  std::map<int, pid_t> ranks;
  for (const auto& event : ReadJsonLines(run_dir / "events.jsonl")) {
    if (event.value("event", "") == "rank_started") ranks[event.at("rank")] = event.at("pid");
  }
  return ranks;
}

TEST(BoundThreads, StayOnTheirRanksCoresWhileTheDriveHoldsTheOptimizer) {
  const TemporaryFolder folder;
  const fs::path drive = folder.path() / "drive", run_dir = folder.path() / "run";
  fs::create_directory(drive);
  const nlohmann::json config = {
      {"train_batch_size", 4},
      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
      {"aio", {{"block_size", 65536}, {"intra_op_parallelism", 2}}},
      {"zero_optimization",
       {{"stage", 2}, {"offload_optimizer", {{"device", "nvme"}, {"nvme_path", drive.string()}}}}}};
  const fs::path file = folder.path() / "ds.json";
  ASSERT_TRUE(WriteFileAtomically(file, config.dump()).ok());
  Program job(DsrunCommand(
      run_dir, {"--num_gpus", "2", "--bind_cores_to_rank", "train", "--model", "gpt2-demo",
                "--data", DS_SOURCE_DIR "/LICENSE", "--deepspeed_config", file.string(),
                "--seq_len", "32", "--steps", "1000000", "--save_every", "2"}));
  if (!job.WaitForOutput("step-2")) {
    const ProgramResult result = job.Wait();
    ASSERT_EQ(result.status, 3) << result.err;
    return SkipWithout("two_cores", result.err);
  }
  std::set<std::string> of_ranks;
  for (const auto& [rank, pid] : FindRanks(run_dir)) {
    const std::multiset<std::string> cores = ListCoresOfThreads(pid);
    EXPECT_GT(cores.size(), 2) << "threads for the drive, at least";
    EXPECT_EQ(cores.count(*cores.begin()), cores.size()) << "rank " << rank;
    of_ranks.insert(*cores.begin());
  }
  EXPECT_EQ(of_ranks.size(), 2) << "each rank has cores of its own";
  job.Signal(SIGTERM);
  job.Wait();
}

}  // namespace
}  // namespace ds::testing
