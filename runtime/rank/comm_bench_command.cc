#include "runtime/rank/commands.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/comm/bandwidth.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/join_job.h"
#include "runtime/device/rank_device.h"
#include "runtime/rank/torch_boundary.h"

namespace ds::rank {
namespace {

StatusOr<at::ScalarType> ParseDtype(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "float16") return at::kHalf;
  if (name == "bfloat16") return at::kBFloat16;
  return InvalidArgumentError("bench job: unknown dtype '" + name + "'");
}

class CommBench {
 public:
  CommBench(const config::CommBenchJob& job, const comm::RankIdentity& identity,
            RankReporter& reporter)
      : job_(job), identity_(identity), reporter_(reporter) {}

  Status Run();

 private:
  Status Measure(const std::string& collective, std::int64_t bytes);
  // Returns one call of the collective; its tensors hold `count` elements in one rank's input.
  std::function<void()> MakeCall(const std::string& collective, std::int64_t count);
  // Returns the mean of the trials on the slowest rank, in seconds.
  double TimeCalls(const std::function<void()>& call);

  const config::CommBenchJob& job_;
  const comm::RankIdentity& identity_;
  RankReporter& reporter_;
  device::RankDevice device_;
  at::TensorOptions tensors_;
  std::unique_ptr<comm::Communicator> world_;
  std::int64_t measured_ = 0;
};

Status CommBench::Run() {
  const std::vector<std::int64_t> sizes = config::ListBenchSizes(job_);
  const auto total = static_cast<std::int64_t>(sizes.size() * job_.collectives.size());
  DS_ASSIGN_OR_RETURN(const at::ScalarType dtype, ParseDtype(job_.dtype));
  DS_ASSIGN_OR_RETURN(const device::DeviceChoice choice, device::DeviceChoiceFromName(job_.device));
  DS_ASSIGN_OR_RETURN(device_, device::OpenRankDevice(choice, identity_.local_rank));
  tensors_ = at::TensorOptions(dtype).device(device_.device);
  reporter_.ReportPhase("connect the ranks", total);
  DS_ASSIGN_OR_RETURN(world_, comm::JoinJob(identity_, device_, reporter_.link(), job_.encrypt));
  reporter_.ReportPhase("measure", total);
  for (const std::string& collective : job_.collectives) {
    for (const std::int64_t bytes : sizes) DS_RETURN_IF_ERROR(Measure(collective, bytes));
  }
  reporter_.ReportEnd({{"steps", measured_}});
  return OkStatus();
}

Status CommBench::Measure(const std::string& collective, std::int64_t bytes) {
  const auto element = static_cast<std::int64_t>(c10::elementSize(tensors_.dtype().toScalarType()));
  const std::int64_t ranks = world_->size();
  const std::int64_t count = std::max<std::int64_t>(1, bytes / element / ranks) * ranks;
  const double seconds = TimeCalls(MakeCall(collective, count));
  const std::int64_t size = count * element;
  const comm::Bandwidth bandwidth =
      comm::ComputeBandwidth(collective, size, seconds, static_cast<int>(ranks));
  constexpr double kGigabit = 1e9 / 8;
  ++measured_;
  if (identity_.rank != 0) return OkStatus();
  reporter_.ReportStep({{"step", measured_},
                        {"collective", collective},
                        {"size_bytes", size},
                        {"elements", count},
                        {"element_bytes", element},
                        {"seconds", seconds},
                        {"throughput_gbps", bandwidth.throughput / kGigabit},
                        {"busbw_gbps", bandwidth.bus / kGigabit}});
  return OkStatus();
}

std::function<void()> CommBench::MakeCall(const std::string& collective, std::int64_t count) {
  comm::Communicator& world = *world_;
  const at::Tensor input = at::zeros({count}, tensors_);  // sums of zeros stay finite
  if (collective == "all_reduce") {
    return [&world, input] { world.AllReduce(input, comm::ReduceOp::kSum); };
  }
  if (collective == "broadcast") return [&world, input] { world.Broadcast(input, 0); };
  if (collective == "pt2pt") {
    return [&world, input] {
      const int last = world.size() - 1;
      if (world.rank() == 0) world.Send(input, last);
      if (world.rank() == last) world.Recv(input, 0);
    };
  }
  if (collective == "all_gather") {
    const at::Tensor output = at::zeros({count * world.size()}, tensors_);
    return [&world, input, output] { world.AllGather(output, input); };
  }
  if (collective == "reduce_scatter") {
    const at::Tensor output = at::zeros({count / world.size()}, tensors_);
    return [&world, input, output] { world.ReduceScatter(output, input, comm::ReduceOp::kSum); };
  }
  const at::Tensor output = at::zeros({count}, tensors_);
  return [&world, input, output] { world.AllToAll(output, input); };
}

double CommBench::TimeCalls(const std::function<void()>& call) {
  for (std::int64_t i = 0; i < job_.warmups; ++i) call();
  device::Synchronize(device_.device);
  comm::Communicator& control = world_->control();
  control.Barrier();
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < job_.trials; ++i) call();
  device::Synchronize(device_.device);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  const at::Tensor slowest =
      at::zeros({1}, at::TensorOptions(at::kDouble).device(control.device()));
  slowest.fill_(passed.count() / static_cast<double>(job_.trials));
  control.AllReduce(slowest, comm::ReduceOp::kMax);
  return slowest.item<double>();
}

}  // namespace

void RunCommBench(const config::CommBenchJob& job, const comm::RankIdentity& identity,
                  RankReporter& reporter) {
  CommBench bench(job, identity, reporter);
  const Status status = AtTorchBoundary([&] { return bench.Run(); });
  if (status.ok()) return;
  reporter.ReportError({.status = status});
  std::fflush(nullptr);
  std::_Exit(kExitFailure);  // at once, for the reason given in train_command.cc
}

}  // namespace ds::rank
