#include "cli/train/train_session.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/front/run_job.h"
#include "cli/job/job_plan.h"
#include "cli/train/train_program.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/shell_quote.h"
#include "runtime/checkpoint_format/latest.h"
#include "runtime/plan/mesh/mesh.h"

namespace ds::cli {
namespace {

// Returns the last lines of a first demo. `program` is dsrun as the user may type it.
std::vector<std::string> NextCommands(const std::string& program) {
  const std::string dsrun = ShellQuote(program);
  return {"three commands to try next:",
          "  " + dsrun + " train --help             # models, data and settings of your own",
          "  " + dsrun + " --num_gpus 2 run -- env  # any program, on two ranks",
          "  " + dsrun + " report                   # this machine"};
}

// True if no other job has a folder next to the run's.
bool IsFirstRun(const RunDirectory& run_directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path own = fs::absolute(run_directory.path()).lexically_normal();
  fs::directory_iterator entry(own.parent_path(), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const bool is_other = entry->path().filename() != own.filename();
    std::error_code ignored;
    if (is_other && fs::exists(entry->path() / "job.json", ignored)) return false;
  }
  return true;
}

// The logs that count generations may have been removed, so checkpoints count as well.
StatusOr<int> ChooseGeneration(const RunDirectory& run_directory) {
  DS_ASSIGN_OR_RETURN(const auto latest, checkpoint::ReadLatest(run_directory.checkpoints()));
  const int next = latest ? static_cast<int>(latest->generation) + 1 : 0;
  DS_ASSIGN_OR_RETURN(const int after_logs, run_directory.NextGeneration());
  return std::max(after_logs, next);
}

// Restores the previous settings of a failed job that has not finished a step with the new ones.
// The next resume would fail with them, and no flag can undo some. Returns a text for the user.
std::string KeepSettings(const RunDirectory::Settings& before, RunDirectory* run_directory) {
  if (run_directory->has_new_steps()) return "";
  const Status put_back = run_directory->PutBack(before);
  if (!put_back.ok()) return "the run has lost the settings that it had: " + put_back.message();
  return "no step was finished: the run keeps the settings that it had";
}

}  // namespace

RankCounts CountRanks(const WorldPlan& world) {
  RankCounts counts{.all = world.world_size(), .of_host = 0, .on_this_host = true};
  for (const JobHost& host : world.hosts) {
    counts.of_host = std::max(counts.of_host, host.rank_count());
    counts.on_this_host = counts.on_this_host && !host.remote;
  }
  return counts;
}

StatusOr<int> RunTraining(JobRequest request, TrainInputs inputs, JudgedTraining judged,
                          std::unique_ptr<RunDirectory> run_directory) {
  inputs.job.checkpoint_dir = run_directory->checkpoints().string();
  inputs.job.device = DeviceName(request.flags.device);
  const std::vector<std::string> split =
      DescribeSplitGroups(request.launch.world, inputs.config.parallel);
  inputs.notices.insert(inputs.notices.end(), split.begin(), split.end());
  inputs.notices.insert(inputs.notices.end(), judged.notices.begin(), judged.notices.end());
  request.notices.insert(request.notices.end(), inputs.notices.begin(), inputs.notices.end());
  DS_ASSIGN_OR_RETURN(const int first_generation, ChooseGeneration(*run_directory));
  JobPurpose purpose{.built_in = true,
                     .trains = true,
                     .total_steps = inputs.job.steps,
                     .first_generation = first_generation,
                     .model = inputs.job.save_hf_dir,
                     .closing_lines = {},
                     .memory = std::move(judged.memory)};
  if (inputs.demo && IsFirstRun(*run_directory)) {
    purpose.closing_lines = NextCommands(ShortenPath(request.command_line.words.at(0)));
  }
  const JobPlan plan = PlanJob(std::move(request), std::move(purpose));

  nlohmann::ordered_json job = DescribeJob("train", plan);
  job["train"] = nlohmann::ordered_json::parse(config::ToJson(inputs.job));
  const auto before = run_directory->ReadSettings();  // of a resumed run
  DS_RETURN_IF_ERROR(MakeDirectories(run_directory->checkpoints()));
  DS_RETURN_IF_ERROR(run_directory->WriteJob(job, Durability::kDurable));
  DS_RETURN_IF_ERROR(run_directory->WriteResolvedConfig(inputs.resolved_config));
  DS_RETURN_IF_ERROR(run_directory->RemoveVerdict());
  const TrainProgram program(inputs.job, plan.purpose.first_generation,
                             std::move(judged.predicted));
  const auto after = [&](bool failed) {
    return failed && before.ok() ? KeepSettings(*before, run_directory.get()) : std::string();
  };
  return RunJob(plan, program, run_directory.get(), after);
}

namespace {

// Returns the index in WorldPlan::hosts of each rank.
std::vector<std::size_t> HostsOfRanks(const WorldPlan& world) {
  std::vector<std::size_t> hosts;
  for (std::size_t host = 0; host < world.hosts.size(); ++host) {
    hosts.insert(hosts.end(), static_cast<std::size_t>(world.hosts[host].rank_count()), host);
  }
  return hosts;
}

// Returns the largest group size of adjacent ranks, at most `wanted`, that no host boundary splits.
int LargestDegree(const WorldPlan& world, int wanted) {
  for (int count = wanted; count > 1; --count) {
    bool divides = wanted % count == 0;
    for (const JobHost& host : world.hosts) divides = divides && host.rank_count() % count == 0;
    if (divides) return count;
  }
  return 1;
}

// `inside` is the number of ranks along axes nested inside this one.
std::optional<std::string> DescribeSplit(const WorldPlan& world, const topology::Mesh& mesh,
                                         topology::Axis axis, int inside) {
  const std::vector<std::size_t> hosts = HostsOfRanks(world);
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const std::vector<int> group = mesh.GroupOf(rank, {axis});
    const std::size_t first = hosts[static_cast<std::size_t>(group.front())];
    const std::size_t last = hosts[static_cast<std::size_t>(group.back())];
    if (first == last) continue;
    const std::string name(topology::NameOf(axis));
    const int degree = mesh.degrees().along(axis);
    const int largest = LargestDegree(world, degree * inside) / inside;
    return name + " ranks " + std::to_string(group.front()) + " to " +
           std::to_string(group.back()) + " are on " + world.hosts[first].host + " and " +
           world.hosts[last].host +
           " and communicate in every layer over the network between the two: " + name + " " +
           std::to_string(std::max(largest, 1)) + " in place of " + std::to_string(degree) +
           " keeps them on one host" +
           (axis == topology::Axis::kTensor ? "; stages (--pp) may be on several" : "");
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> DescribeSplitGroups(const WorldPlan& world,
                                             const config::ParallelConfig& degrees) {
  const int ranks = world.world_size();
  const auto mesh =
      topology::Mesh::Create({.pipeline = degrees.pipeline,
                              .shard = static_cast<int>(ranks / degrees.ranks_of_a_sample()),
                              .sequence = degrees.sequence,
                              .tensor = degrees.tensor},
                             ranks);
  std::vector<std::string> sentences;
  if (!mesh.ok()) return sentences;
  const auto add = [&](topology::Axis axis, int inside) {
    if (const auto said = DescribeSplit(world, *mesh, axis, inside)) sentences.push_back(*said);
  };
  add(topology::Axis::kTensor, 1);
  add(topology::Axis::kSequence, degrees.tensor);
  return sentences;
}

}  // namespace ds::cli
