// dsrank: one rank of a job, started by dsrund (or by hand, as a world of one).
//
//   dsrank train JOB.json     JOB.json is a TrainJob (runtime/config/train_job.h)
//   dsrank bench JOB.json     a CommBenchJob (runtime/config/comm_bench_job.h)
//   dsrank generate JOB.json  a GenerateJob (runtime/config/generate_job.h); texts to stdout
//   dsrank facts              capabilities of this build and machine, as JSON
//   dsrank --version

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/isa_probe.h"
#include "runtime/base/log.h"
#include "runtime/base/rank_link.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/config/comm_bench_job.h"
#include "runtime/config/train_job.h"
#include "runtime/device/heap.h"
#include "runtime/device/rank_device.h"
#include "runtime/rank/commands.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {
namespace {

// JobKind: a kind of job, with its parser and its function.
template <typename Job>
struct JobKind {
  StatusOr<Job> (*parse)(std::string_view json);
  void (*run)(const Job& job, const comm::RankIdentity& identity, RankReporter& reporter);
};

template <typename Job>
StatusOr<Job> ReadJob(const std::string& path, const JobKind<Job>& kind) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  auto job = kind.parse(text);
  if (!job.ok()) return job.status().WithContext(path);
  return job;
}

template <typename Job>
int RunJob(const std::string& path, const JobKind<Job>& kind) {
  auto link = RankLink::FromEnvironment();
  auto identity = comm::RankIdentityFromEnvironment();
  RankReporter reporter(link.ok() ? std::move(*link) : nullptr, identity.ok() ? identity->rank : 0);
  reporter.ReportHello();
  const auto end = [&](const Failure& failure) {
    reporter.ReportError(failure);
    return failure.exit_code;
  };
  if (!link.ok()) return end({.status = link.status(), .exit_code = kExitUsage});
  if (!identity.ok()) return end({.status = identity.status(), .exit_code = kExitUsage});
  const auto job = ReadJob(path, kind);
  if (!job.ok()) return end({.status = job.status(), .exit_code = kExitUsage});
  kind.run(*job, *identity, reporter);
  return 0;
}

// Collects the capabilities of this build and this machine, for `dsrun report` and the preflight.
nlohmann::ordered_json CollectFacts(const IsaReport& isa) {
  nlohmann::ordered_json cuda = {{"plugin", false}, {"devices", 0}};
  if (const auto plugin = device::LoadCudaPlugin(); plugin.ok()) {
    cuda = {{"plugin", true},
            {"devices", (*plugin)->DeviceCount()},
            {"cuda", (*plugin)->CudaVersion()},
            {"nccl", (*plugin)->NcclVersion()}};
  } else {
    cuda["reason"] = plugin.status().message();
  }
  return {
      {"dsrun", DS_VERSION},
      {"libtorch", TORCH_VERSION},
      {"compiler", __VERSION__},
      {"cpu_capability", at::get_cpu_capability()},
      {"threads", at::get_num_threads()},
      {"cores", std::thread::hardware_concurrency()},
      {"amx", {{"advertised", isa.amx_advertised}, {"faults", isa.amx_faults}}},
      {"onednn_max_cpu_isa", isa.onednn_limit},
      {"cuda", cuda},
  };
}

int PrintUsage() {
  std::fprintf(stderr,
               "usage: dsrank train|bench|generate JOB.json | dsrank facts | dsrank --version\n");
  return kExitUsage;
}

int RunCommand(std::span<char*> arguments) {
  InitLog("dsrank");
  // Ignore SIGXFSZ: a write beyond a file size limit then fails with EFBIG, like a full disk,
  // instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::string_view command = arguments.size() > 1 ? arguments[1] : "";
  if (command == "--version" && arguments.size() == 2) {
    std::printf("dsrank %s\n", DS_VERSION);
    return 0;
  }
  device::KeepFreedMemory();
  // Runs before the first tensor operation: oneDNN reads the limit once.
  const IsaReport isa = ProbeAndCapIsa();
  if (command == "facts" && arguments.size() == 2) {
    std::printf("%s\n", CollectFacts(isa).dump(2).c_str());
    return 0;
  }
  if (command == "train" && arguments.size() == 3) {
    return RunJob<config::TrainJob>(arguments[2], {config::TrainJobFromJson, RunTrain});
  }
  if (command == "bench" && arguments.size() == 3) {
    return RunJob<config::CommBenchJob>(arguments[2], {config::CommBenchJobFromJson, RunCommBench});
  }
  if (command == "generate" && arguments.size() == 3) return RunGenerate(arguments[2]);
  return PrintUsage();
}

}  // namespace
}  // namespace ds::rank

int main(int argc, char** argv) {
  return ds::rank::RunCommand({argv, static_cast<std::size_t>(argc)});
}
