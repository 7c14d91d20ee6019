// WorldGroup's reductions.

#include <algorithm>
#include <vector>

#include "runtime/comm/net/chain_reduction.h"
#include "runtime/comm/net/world_group.h"
#include "runtime/comm/shm/rounds.h"

namespace ds::comm {
namespace {

// Returns a lane's part of a block.
Round LaneOf(const Round& block, int lane, int lanes) {
  const auto parts = static_cast<std::size_t>(lanes);
  const std::size_t per_lane = (block.count + parts - 1) / parts;
  const Round part = RoundOf(static_cast<std::size_t>(lane), per_lane, block.count);
  return {.begin = block.begin + part.begin, .count = part.count};
}

}  // namespace

Status WorldGroup::Barrier() {
  std::byte nothing{};
  return AllReduceAs(&nothing, {1, ElementType::kUInt8}, Begin({.kind = CallKind::kBarrier}));
}

Status WorldGroup::AllReduce(std::byte* data, Elements elements, ReduceOp op) {
  return AllReduceAs(data, elements,
                     Begin({.kind = CallKind::kAllReduce,
                            .type = elements.type,
                            .op = op,
                            .count = elements.count}));
}

Status WorldGroup::Reduce(std::byte* data, Elements elements, ReduceOp op, int root) {
  const CallSignature call = Begin({.kind = CallKind::kReduce,
                                    .type = elements.type,
                                    .op = op,
                                    .root = root,
                                    .count = elements.count});
  if (rank_ == root) return AllReduceAs(data, elements, call);
  std::vector<std::byte> copy(data, data + elements.bytes());
  return AllReduceAs(copy.data(), elements, call);
}

// The results travel back along the chain, each lane's to its carriers, which share them on their
// host.
Status WorldGroup::AllReduceAs(std::byte* data, Elements elements, const CallSignature& call) {
  const EndOfCall end{links_};
  const std::size_t size = ElementBytes(elements.type);
  const int lanes = places_.lanes();
  const std::size_t per_lane = std::max<std::size_t>(1, block_bytes_ / size);
  const std::size_t per_block = per_lane * static_cast<std::size_t>(lanes);
  const std::vector<int> mine = places_.LanesOf(rank_);
  const bool is_last = me_.host == places_.hosts() - 1;
  const auto bytes_of = [&](std::size_t block, int lane) {
    const Round part = LaneOf(RoundOf(block, per_block, elements.count), lane, lanes);
    return std::span(data + part.begin * size, part.count * size);
  };
  std::vector<Tickets> arrivals(Rounds(elements.count, per_block));
  for (std::size_t block = 0; !is_last && block < arrivals.size(); ++block) {
    for (const int lane : mine) {
      const int from = places_.CarrierOf(lane, me_.host + 1);
      arrivals[block].push_back(Await(from, call, bytes_of(block, lane)));
    }
  }
  Tickets departures;
  const ReducePlan plan = {
      .blocks = arrivals.size(),
      .lane_elements = per_lane,
      .segments =
          [&](std::size_t block, int lane) {
            const std::span<std::byte> part = bytes_of(block, lane);
            return std::vector<ReduceSegment>{
                {.input = part.data(), .result = part.data(), .count = part.size() / size}};
          },
      .finish = [&](std::size_t block) -> Status {
        DS_RETURN_IF_ERROR(WaitFor(arrivals[block]));
        for (const int lane : mine) {
          if (me_.host == 0) break;
          departures.push_back(
              Post(places_.CarrierOf(lane, me_.host - 1), call, bytes_of(block, lane)));
        }
        const Round round = RoundOf(block, per_block, elements.count);
        return ShareLanes(data + round.begin * size, {round.count, elements.type}, call);
      }};
  DS_RETURN_IF_ERROR(ChainReduction({*host_, links_, places_, rank_, call, memory_}, plan).Run());
  return WaitFor(departures);
}

// Shares each lane's part of a block, which its carrier holds, with all ranks of this host.
Status WorldGroup::ShareLanes(std::byte* data, Elements elements, const CallSignature& call) {
  if (host_->size() == 1) return OkStatus();
  const int lanes = places_.lanes();
  const std::size_t size = ElementBytes(elements.type);
  const Round block = {.begin = 0, .count = elements.count};
  const std::size_t each = LaneOf(block, 0, lanes).count;
  if (lanes == host_->size() && each * static_cast<std::size_t>(lanes) == elements.count) {
    std::vector<std::byte*> outputs;
    for (int lane = 0; lane < lanes; ++lane) outputs.push_back(data + lane * each * size);
    TagHostCall(call);
    return host_->AllGather(outputs, outputs[me_.local], {each, elements.type});
  }
  for (int lane = 0; lane < lanes; ++lane) {
    const Round part = LaneOf(block, lane, lanes);
    DS_RETURN_IF_ERROR(BroadcastOnHost(data + part.begin * size, {part.count, elements.type},
                                       lane % host_->size(), call));
  }
  return OkStatus();
}

// The segments of a lane are the parts of its ranks on all hosts. The last host's carrier sends
// each result to its receiver.
Status WorldGroup::ReduceScatter(std::byte* output, RankInputs inputs, Elements each, ReduceOp op) {
  const CallSignature call =
      Begin({.kind = CallKind::kReduceScatter, .type = each.type, .op = op, .count = each.count});
  const EndOfCall end{links_};
  const std::size_t size = ElementBytes(each.type);
  const auto hosts = static_cast<std::size_t>(places_.hosts());
  const std::size_t per_block = std::max<std::size_t>(1, block_bytes_ / size / hosts);
  const int last = places_.hosts() - 1;
  const std::size_t blocks = Rounds(each.count, per_block);
  Tickets arrivals;
  for (std::size_t block = 0; me_.host != last && block < blocks; ++block) {
    const Round round = RoundOf(block, per_block, each.count);
    arrivals.push_back(Await(places_.CarrierOf(me_.local, last), call,
                             {output + round.begin * size, round.count * size}));
  }
  const ReducePlan plan = {.blocks = blocks,
                           .lane_elements = per_block * hosts,
                           .segments =
                               [&](std::size_t block, int lane) {
                                 const Round round = RoundOf(block, per_block, each.count);
                                 std::vector<ReduceSegment> segments;
                                 for (int host = 0; host <= last; ++host) {
                                   if (lane >= places_.count_on(host)) continue;
                                   const int owner = places_.first_on(host) + lane;
                                   segments.push_back({.input = inputs[owner] + round.begin * size,
                                                       .result = output + round.begin * size,
                                                       .count = round.count,
                                                       .receiver = host == last ? -1 : owner});
                                 }
                                 return segments;
                               },
                           .finish = nullptr};
  DS_RETURN_IF_ERROR(ChainReduction({*host_, links_, places_, rank_, call, memory_}, plan).Run());
  return WaitFor(arrivals);
}

}  // namespace ds::comm
