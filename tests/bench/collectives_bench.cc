// One rank of scripts/bench/collectives: times the collectives over tensors of several sizes.
//
//     bench_collectives BYTES...
//
// The world is in the environment (RANK, WORLD_SIZE, MASTER_PORT; OMP_NUM_THREADS=1 is the fair
// setting); ranks of several hosts are started by dsrun. Rank 0 prints one JSON object per size:
// the seconds of one call, by collective. BYTES is the large side of a collective: what is reduced,
// what is gathered.

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/rank_link.h"
#include "runtime/comm/join_job.h"

namespace {

using ds::comm::Communicator;
using ds::comm::ReduceOp;

constexpr int kBatches = 7;
constexpr double kBatchSeconds = 0.1;

double Seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The median over batches of calls that follow one another; all ranks use rank 0's batch length.
double MedianCall(Communicator& comm, const std::function<void()>& call) {
  call();
  const at::Tensor calls = at::ones({1}, at::kLong);
  calls.fill_(std::max<std::int64_t>(3, static_cast<std::int64_t>(kBatchSeconds / Seconds(call))));
  comm.Broadcast(calls, 0);
  std::vector<double> medians;
  for (int batch = 0; batch < kBatches; ++batch) {
    comm.Barrier();
    const auto count = calls.item<std::int64_t>();
    medians.push_back(Seconds([&] {
                        for (std::int64_t i = 0; i < count; ++i) call();
                      }) /
                      static_cast<double>(count));
  }
  std::nth_element(medians.begin(), medians.begin() + kBatches / 2, medians.end());
  return medians[kBatches / 2];
}

nlohmann::ordered_json Measure(Communicator& comm, std::int64_t bytes) {
  const std::int64_t count = bytes / 4 / comm.size() * comm.size();
  const at::Tensor full = at::zeros({count}, at::kFloat);  // sums of zeros stay finite
  const at::Tensor other = at::zeros({count}, at::kFloat);
  const at::Tensor part = at::zeros({count / comm.size()}, at::kFloat);
  nlohmann::ordered_json seconds;
  seconds["bytes"] = bytes;
  seconds["all_reduce"] = MedianCall(comm, [&] { comm.AllReduce(full, ReduceOp::kSum); });
  seconds["all_gather"] = MedianCall(comm, [&] { comm.AllGather(full, part); });
  seconds["reduce_scatter"] =
      MedianCall(comm, [&] { comm.ReduceScatter(part, full, ReduceOp::kSum); });
  seconds["broadcast"] = MedianCall(comm, [&] { comm.Broadcast(full, 0); });
  seconds["barrier"] = MedianCall(comm, [&] { comm.Barrier(); });
  // The limit: one copy of the same bytes by one rank while the others wait.
  seconds["copy"] = MedianCall(comm, [&] {
    if (comm.rank() == 0) other.copy_(full);
  });
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  const ds::StatusOr<ds::comm::RankIdentity> identity = ds::comm::RankIdentityFromEnvironment();
  if (!identity.ok()) {
    std::fprintf(stderr, "bench_collectives: %s\n", identity.status().message().c_str());
    return 2;
  }
  auto link = ds::RankLink::FromEnvironment();
  auto comm = ds::comm::JoinJob(*identity, ds::device::RankDevice{},
                                link.ok() ? link->get() : nullptr, /*encrypt=*/false);
  if (!comm.ok()) {
    std::fprintf(stderr, "bench_collectives: %s\n", comm.status().message().c_str());
    return 1;
  }
  for (int i = 1; i < argc; ++i) {
    const nlohmann::ordered_json seconds = Measure(**comm, std::atoll(argv[i]));
    if (identity->rank == 0) std::puts(seconds.dump().c_str());
  }
  return 0;
}
