// Two processes that send frames to each other over TCP on loopback, as ranks of different hosts do
// (scripts/bench/links).
//
//     bench_links BYTES...
//
// Prints one JSON object per size: the seconds from one to the other, half of a round trip, as the
// mean over round trips and as the median of batches of them.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/comm/net/connect_peers.h"

namespace {

using namespace ds::comm;  // NOLINT: a program of one file

constexpr int kBatches = 15;
constexpr double kBatchSeconds = 0.1;
const std::vector<LocalAddress> kLoopback = {
    {.interface = "lo", .text = "127.0.0.1", .prefix = 8, .loopback = true}};

class Endpoint {
 public:
  Endpoint(int rank, const PeerListener& listener, const std::vector<PeerRecord>& records)
      : peer_(1 - rank),
        links_(ConnectPeers({.rank = rank, .key = "key", .addresses = kLoopback}, listener, records)
                   .value(),
               std::chrono::minutes(5)) {}

  void Send(std::span<const std::byte> bytes) { Await(links_.Send(FrameOf(bytes.size()), bytes)); }
  void Receive(std::span<std::byte> bytes) { Await(links_.Receive(FrameOf(bytes.size()), bytes)); }

 private:
  Frame FrameOf(std::size_t size) const { return {.peer = peer_, .call = {.count = size}}; }
  void Await(const PeerLinks::Ticket& ticket) { DS_CHECK(links_.Wait(ticket).ok()); }

  const int peer_;
  PeerLinks links_;
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

}  // namespace

int main(int argc, char** argv) {
  std::vector<PeerListener> listeners;
  std::vector<PeerRecord> records;
  for (int rank = 0; rank < 2; ++rank) {
    listeners.push_back(PeerListener::Open(kLoopback).value());
    records.push_back(
        {.host = "h" + std::to_string(rank), .endpoints = listeners[rank].endpoints()});
  }
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
