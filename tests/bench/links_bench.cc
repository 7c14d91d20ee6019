// Two processes that send frames to each other over TCP on loopback, as ranks of different hosts do
// (scripts/bench/links).
//
//     bench_links BYTES...
//     bench_links --aborts N
//
// Prints one JSON object per size: the seconds from one to the other, half of a round trip, as the
// mean over round trips and as the median of batches of them. With --aborts: the seconds from an
// abort by one rank to the end of what another one waits for, on one host and on two.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/comm/net/connect_peers.h"
#include "runtime/comm/net/world_group.h"

namespace {

using namespace ds::comm;  // NOLINT: a program of one file

constexpr int kBatches = 15;
constexpr double kBatchSeconds = 0.1;
const std::vector<LocalAddress> kLoopback = {
    {.interface = "lo", .text = "127.0.0.1", .prefix = 8, .loopback = true}};

using Listeners = std::vector<PeerListener>;

// Of two ranks on hosts of their own.
std::pair<Listeners, std::vector<PeerRecord>> ListenOnLoopback() {
  Listeners listeners;
  std::vector<PeerRecord> records;
  for (int rank = 0; rank < 2; ++rank) {
    listeners.push_back(PeerListener::Open(kLoopback).value());
    records.push_back(
        {.host = "h" + std::to_string(rank), .endpoints = listeners[rank].endpoints()});
  }
  return {std::move(listeners), std::move(records)};
}

std::unique_ptr<PeerLinks> Connect(int rank, const PeerListener& listener,
                                   const std::vector<PeerRecord>& records) {
  return std::make_unique<PeerLinks>(
      ConnectPeers({.rank = rank, .key = "key", .addresses = kLoopback}, listener, records).value(),
      std::chrono::minutes(5));
}

class Endpoint {
 public:
  Endpoint(int rank, const PeerListener& listener, const std::vector<PeerRecord>& records)
      : peer_(1 - rank), links_(Connect(rank, listener, records)) {}

  void Send(std::span<const std::byte> bytes) { Await(links_->Send(FrameOf(bytes.size()), bytes)); }
  void Receive(std::span<std::byte> bytes) { Await(links_->Receive(FrameOf(bytes.size()), bytes)); }

 private:
  Frame FrameOf(std::size_t size) const { return {.peer = peer_, .call = {.count = size}}; }
  void Await(const PeerLinks::Ticket& ticket) { DS_CHECK(links_->Wait(ticket).ok()); }

  const int peer_;
  std::unique_ptr<PeerLinks> links_;
};

void RoundTrips(Endpoint& endpoint, bool begins, std::int64_t count, std::span<std::byte> bytes) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (begins) endpoint.Send(bytes);
    endpoint.Receive(bytes);
    if (!begins) endpoint.Send(bytes);
  }
}

double Seconds(Endpoint& endpoint, std::int64_t count, std::span<std::byte> bytes) {
  const auto start = std::chrono::steady_clock::now();
  RoundTrips(endpoint, /*begins=*/true, count, bytes);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  return time.count() / static_cast<double>(2 * count);
}

// The one that begins says how many round trips follow.
void Measure(Endpoint& endpoint, std::span<std::byte> bytes) {
  std::array<std::int64_t, 1> count{2};
  const auto announce = [&] { endpoint.Send(std::as_bytes(std::span(count))); };
  announce();
  const double first = Seconds(endpoint, count[0], bytes);
  count[0] = std::max<std::int64_t>(2, static_cast<std::int64_t>(kBatchSeconds / first / 2));
  std::vector<double> batches;
  double sum = 0.0;
  for (int batch = 0; batch < kBatches; ++batch) {
    announce();
    batches.push_back(Seconds(endpoint, count[0], bytes));
    sum += batches.back();
  }
  std::nth_element(batches.begin(), batches.begin() + kBatches / 2, batches.end());
  const nlohmann::ordered_json line = {
      {"bytes", bytes.size()}, {"mean", sum / kBatches}, {"median", batches[kBatches / 2]}};
  std::puts(line.dump().c_str());
}

void Answer(Endpoint& endpoint, std::span<std::byte> bytes) {
  for (int batch = 0; batch <= kBatches; ++batch) {
    std::array<std::int64_t, 1> count{};
    endpoint.Receive(std::as_writable_bytes(std::span(count)));
    RoundTrips(endpoint, /*begins=*/false, count[0], bytes);
  }
}

using Groups = std::vector<std::unique_ptr<CpuGroup>>;

// Ranks that share the memory of a host, as threads.
std::unique_ptr<HostGroup> JoinHost(const std::shared_ptr<SharedRegion>& region,
                                    HostGroupOptions options, int rank) {
  options.self.rank = rank;
  return std::make_unique<HostGroup>(region, options);
}

std::shared_ptr<SharedRegion> MakeRegion(const HostGroupOptions& options) {
  return std::make_shared<SharedRegion>(
      SharedRegion::Private(HostGroup::RegionBytes(options)).value());
}

Groups JoinOneHost() {
  HostGroupOptions options{.ranks_are_processes = false};
  options.self.size = 2;
  const auto region = MakeRegion(options);
  Groups groups;
  for (const int rank : {0, 1}) groups.push_back(JoinHost(region, options, rank));
  return groups;
}

Groups JoinTwoHosts() {
  const auto [listeners, records] = ListenOnLoopback();
  Groups groups(2);
  const auto join = [&](int rank) {
    HostGroupOptions options{.ranks_are_processes = false};
    options.self.size = 1;
    options.names = {rank};
    groups[rank] = std::make_unique<WorldGroup>(
        JoinHost(MakeRegion(options), options, 0), Connect(rank, listeners[rank], records),
        WorldGroupOptions{.rank = rank, .layout = RankLocations({1, 1})});
  };
  std::jthread first(join, 0);
  join(1);
  first.join();
  return groups;
}

// From the abort of rank 0 to the end of the barrier that rank 1 waits in by then.
double SecondsOfAbort(const Groups& groups) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point ended;
  std::jthread waiter([&] {
    DS_CHECK(!groups[1]->Barrier().ok());
    ended = Clock::now();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto start = Clock::now();
  groups[0]->Abort("enough");
  waiter.join();
  return std::chrono::duration<double>(ended - start).count();
}

void MeasureAborts(int count) {
  for (const int hosts : {1, 2}) {
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) {
      seconds.push_back(SecondsOfAbort(hosts == 1 ? JoinOneHost() : JoinTwoHosts()));
    }
    std::sort(seconds.begin(), seconds.end());
    const nlohmann::ordered_json line = {
        {"hosts", hosts}, {"median", seconds[seconds.size() / 2]}, {"slowest", seconds.back()}};
    std::puts(line.dump().c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--aborts") {
    MeasureAborts(std::max(1, std::atoi(argv[2])));
    return 0;
  }
  const auto [listeners, records] = ListenOnLoopback();
  const pid_t child = ::fork();
  const int rank = child == 0 ? 1 : 0;
  {
    Endpoint endpoint(rank, listeners[rank], records);
    for (int i = 1; i < argc; ++i) {
      std::vector<std::byte> bytes(std::strtoull(argv[i], nullptr, 10));
      rank == 0 ? Measure(endpoint, bytes) : Answer(endpoint, bytes);
    }
  }
  if (child == 0) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
