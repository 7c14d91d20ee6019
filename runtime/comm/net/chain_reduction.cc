#include "runtime/comm/net/chain_reduction.h"

#include <algorithm>
#include <cstring>

#include "runtime/comm/shm/group_layout.h"
#include "runtime/comm/shm/reduce_kernels.h"
#include "runtime/comm/shm/rounds.h"

namespace ds::comm {
namespace {

std::size_t RoundUp(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

}  // namespace

ChainReduction::ChainReduction(const Inputs& parts, const ReducePlan& plan)
    : parts_(parts),
      plan_(plan),
      me_(parts.layout.LocationOf(parts.rank)),
      lanes_(parts.layout.LanesOf(parts.rank)),
      is_first_(me_.host == 0),
      is_last_(me_.host == parts.layout.hosts() - 1),
      transits_(std::min(kWindow, plan.blocks)) {
  const auto ranks = static_cast<std::size_t>(parts.layout.count_on(me_.host));
  const auto all_lanes = static_cast<std::size_t>(parts.layout.lanes());
  const std::size_t lane = RoundUp(plan.lane_elements * ElementBytes(parts.call.type));
  const std::size_t sums =
      RoundUp(plan.lane_elements * ElementBytes(AccumulatorType(parts.call.type))) * lanes_.size();
  const std::size_t on_host = ranks == 1 ? 0 : lane * (all_lanes + ranks * lanes_.size());
  const std::size_t bytes = transits_.size() * 2 * sums + on_host + kCacheLine;
  if (parts.memory.size() < bytes) parts.memory.resize(bytes);
  const auto start = reinterpret_cast<std::uintptr_t>(parts.memory.data());
  std::byte* next = parts.memory.data() + (RoundUp(start) - start);
  for (Transit& transit : transits_) {
    transit.before = next;
    transit.outgoing = next + sums;
    next += 2 * sums;
  }
  packed_ = next;
  collected_ = next + lane * all_lanes;
}

Status ChainReduction::Run() {
  for (std::size_t block = 0; block < transits_.size(); ++block) AwaitSums(block);
  const std::size_t lag = is_last_ ? 0 : transits_.size() - 1;
  for (std::size_t step = 0; step < plan_.blocks + lag; ++step) {
    if (step < plan_.blocks) DS_RETURN_IF_ERROR(Forward(step));
    if (step >= lag && plan_.finish) DS_RETURN_IF_ERROR(plan_.finish(step - lag));
  }
  for (Transit& transit : transits_) DS_RETURN_IF_ERROR(WaitFor(&transit.departures));
  return OkStatus();
}

std::size_t ChainReduction::CountOf(std::size_t block, int lane) const {
  std::size_t count = 0;
  for (const ReduceSegment& segment : plan_.segments(block, lane)) count += segment.count;
  return count;
}

void ChainReduction::AwaitSums(std::size_t block) {
  if (is_first_ || block >= plan_.blocks) return;
  Transit& transit = FindTransit(block);
  const std::size_t size = ElementBytes(AccumulatorType(parts_.call.type));
  std::byte* to = transit.before;
  for (const int lane : lanes_) {
    const std::size_t bytes = CountOf(block, lane) * size;
    const int peer = parts_.layout.CarrierOf(lane, me_.host - 1);
    transit.arrivals.push_back(
        parts_.links.Receive({.peer = peer, .call = parts_.call}, std::span(to, bytes)));
    to += bytes;
  }
}

Status ChainReduction::Forward(std::size_t block) {
  Transit& transit = FindTransit(block);
  DS_RETURN_IF_ERROR(WaitFor(&transit.departures));
  DS_RETURN_IF_ERROR(Collect(block));
  DS_RETURN_IF_ERROR(WaitFor(&transit.arrivals));
  std::size_t done = 0;
  for (const int lane : lanes_) {
    DS_RETURN_IF_ERROR(ReduceLane(block, lane, done));
    done += CountOf(block, lane);
  }
  AwaitSums(block + transits_.size());
  return OkStatus();
}

// Exchanges the segments within the host: every rank sends each other rank the segments of the
// lanes that it carries.
Status ChainReduction::Collect(std::size_t block) {
  const int ranks = parts_.layout.count_on(me_.host);
  if (ranks == 1) return OkStatus();
  const ElementType type = parts_.call.type;
  const std::size_t size = ElementBytes(type);
  std::vector<const std::byte*> inputs;
  std::vector<std::uint64_t> input_counts;
  std::byte* next = packed_;
  for (int local = 0; local < ranks; ++local) {
    inputs.push_back(next);
    for (const int lane : parts_.layout.LanesOf(parts_.layout.first_on(me_.host) + local)) {
      for (const ReduceSegment& segment : plan_.segments(block, lane)) {
        Copy(next, segment.input, segment.count * size);
        next += segment.count * size;
      }
    }
    input_counts.push_back(static_cast<std::uint64_t>(next - inputs.back()) / size);
  }
  const std::uint64_t each = input_counts[static_cast<std::size_t>(me_.local)];
  std::vector<std::byte*> outputs;
  for (int local = 0; local < ranks; ++local) outputs.push_back(collected_ + local * each * size);
  from_.assign(outputs.begin(), outputs.end());
  const std::vector<std::uint64_t> output_counts(static_cast<std::size_t>(ranks), each);
  parts_.host.TagNextCall(CallTag(Describe(parts_.call)));
  return parts_.host.AllToAll({.outputs = outputs,
                               .output_counts = output_counts,
                               .inputs = inputs,
                               .input_counts = input_counts,
                               .type = type});
}

// Returns whether the input of the chain's first rank can be sent as its host's sum without a copy:
// it is the only rank of its host, and its type is the accumulator type. The result may overwrite
// it before the call ends, because the peer has all of it by then.
bool ChainReduction::IsSumAlready(const std::vector<ReduceSegment>& segments) const {
  return is_first_ && !is_last_ && parts_.layout.count_on(me_.host) == 1 && segments.size() == 1 &&
         AccumulatorType(parts_.call.type) == parts_.call.type;
}

// `done` is the number of elements of this rank's lanes before this lane.
Status ChainReduction::ReduceLane(std::size_t block, int lane, std::size_t done) {
  Transit& transit = FindTransit(block);
  const std::size_t size = ElementBytes(parts_.call.type);
  const std::size_t wide = ElementBytes(AccumulatorType(parts_.call.type));
  const std::size_t first = done;
  const std::vector<ReduceSegment> segments = plan_.segments(block, lane);
  if (IsSumAlready(segments)) {
    transit.departures.push_back(parts_.links.Send(
        {.peer = parts_.layout.CarrierOf(lane, me_.host + 1), .call = parts_.call},
        std::span(segments.front().input, segments.front().count * size)));
    return OkStatus();
  }
  for (const ReduceSegment& segment : segments) {
    std::vector<const std::byte*> sources;
    for (const std::byte* begin : from_) sources.push_back(begin + done * size);
    if (from_.empty()) sources.push_back(segment.input);
    const bool stays = is_last_ && segment.receiver < 0;
    std::byte* const output = stays ? segment.result : transit.outgoing + done * wide;
    ContinueReduction(output, sources, segment.count, parts_.call.type, parts_.call.op,
                      {.before = is_first_ ? nullptr : transit.before + done * wide,
                       .ranks = is_last_ ? parts_.layout.size() : 0});
    if (is_last_ && !stays) {
      transit.departures.push_back(
          parts_.links.Send({.peer = segment.receiver, .call = parts_.call},
                            std::span(output, segment.count * size)));
    }
    done += segment.count;
  }
  if (!is_last_) {
    transit.departures.push_back(parts_.links.Send(
        {.peer = parts_.layout.CarrierOf(lane, me_.host + 1), .call = parts_.call},
        std::span(transit.outgoing + first * wide, (done - first) * wide)));
  }
  return OkStatus();
}

Status ChainReduction::WaitFor(std::vector<PeerLinks::Ticket>* tickets) {
  for (const PeerLinks::Ticket& ticket : *tickets) {
    DS_RETURN_IF_ERROR(parts_.links.Wait(ticket));
  }
  tickets->clear();
  return OkStatus();
}

}  // namespace ds::comm
