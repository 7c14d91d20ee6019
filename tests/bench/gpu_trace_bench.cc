// Steps of a GPT-2 on one GPU, and the trace of some of them by LibTorch's profiler:
//
//     bench_gpu_trace STAGE OFFLOADS LAYERS WIDTH TOKENS SAMPLES ACCUMULATION STEPS TRACE
//
// OFFLOADS is "none", "parameters", "optimizer", "both", or "backward": both, and each block is
// updated in the backward pass (super_offload). Prints {"step_seconds", "tokens", "losses"} as
// JSON, of STEPS steps behind three that warm up; TRACE gets two more, as chrome://tracing reads
// them, and is told of none by "-". scripts/bench/gpu_trace makes shares of that.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/parse_number.h"
#include "runtime/comm/join_job.h"
#include "runtime/device/rank_device.h"
#include "runtime/engine/executor.h"
#include "tests/gpu/gpu_decoder.h"

namespace {

using ds::engine::EngineComponents;
using ds::tests::GpuDecoder;

struct Options {
  GpuDecoder run;
  int steps = 0;
  std::string trace;
};

std::int64_t Number(const char* text) { return ds::ParseNumber<std::int64_t>(text).value(); }

Options Parse(char** arguments) {
  const std::string_view offloads = arguments[2];
  const bool both = offloads == "both" || offloads == "backward";
  GpuDecoder run{.layers = Number(arguments[3]),
                 .width = Number(arguments[4]),
                 .vocabulary = 50257,
                 .tokens = Number(arguments[5]),
                 .samples = Number(arguments[6]),
                 .stage = static_cast<int>(Number(arguments[1])),
                 .offloads_parameters = both || offloads == "parameters",
                 .offloads_optimizer = both || offloads == "optimizer",
                 .updates_in_backward = offloads == "backward",
                 .accumulation = Number(arguments[7])};
  run.heads = run.width / 64;
  return {run, static_cast<int>(Number(arguments[8])), arguments[9]};
}

double Step(EngineComponents& engine, const ds::Bundle& batch) {
  const auto next = [&]() -> ds::StatusOr<ds::Bundle> { return batch; };
  return ds::engine::Executor(engine).RunStep(next).value().loss;
}

void Trace(const std::string& path, const std::function<void()>& body) {
  namespace profiler = torch::profiler::impl;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> activities{profiler::ActivityType::CPU,
                                                    profiler::ActivityType::CUDA};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  body();
  torch::autograd::profiler::disableProfiler()->save(path);
}

int Run(const Options& options) {
  const auto device = ds::device::OpenRankDevice(ds::device::DeviceChoice::kCuda, 0);
  if (!device.ok()) {
    fmt::print(stderr, "{}\n", device.status().message());
    return 1;
  }
  auto* const world = ds::comm::ConnectWorld({.job_id = "gpu-trace"}, *device).value().release();
  const auto engine = ds::tests::BuildDecoder(options.run, *world);
  const ds::Bundle batch = ds::tests::MakeBatch(options.run, *world);
  std::vector<double> losses, seconds;
  for (int i = 0; i < options.steps + 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    losses.push_back(Step(*engine, batch));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i >= 3) seconds.push_back(took.count());
  }
  if (options.trace != "-") {
    Trace(options.trace, [&] {
      for (int i = 0; i < 2; ++i) losses.push_back(Step(*engine, batch));
      ds::device::Synchronize(device->device);
    });
  }
  const GpuDecoder& run = options.run;
  fmt::print("{{\"step_seconds\":[{}],\"tokens\":{},\"losses\":[{}]}}\n", fmt::join(seconds, ","),
             run.tokens * run.samples * run.accumulation, fmt::join(losses, ","));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 10) {
    fmt::print(
        stderr,
        "bench_gpu_trace STAGE OFFLOADS LAYERS WIDTH TOKENS SAMPLES ACCUMULATION STEPS TRACE\n");
    return 2;
  }
  return Run(Parse(arguments));
}
