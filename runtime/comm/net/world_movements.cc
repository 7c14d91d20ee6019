// WorldGroup's collectives that only move data.

#include <algorithm>
#include <vector>

#include "runtime/comm/net/world_group.h"
#include "runtime/comm/shm/rounds.h"

namespace ds::comm {

// Each rank sends its input to the carrier of its lane on every other host, which shares it within
// that host.
Status WorldGroup::AllGather(RankOutputs outputs, const std::byte* input, Elements each) {
  const CallSignature call =
      Begin({.kind = CallKind::kAllGather, .type = each.type, .count = each.count});
  const EndOfCall end{links_};
  std::vector<Tickets> arrivals(static_cast<std::size_t>(places_.hosts()));
  Tickets departures;
  for (int host = 0; host < places_.hosts(); ++host) {
    if (host == me_.host) continue;
    departures.push_back(Post(places_.CarrierOf(me_.local, host), call, {input, each.bytes()}));
    for (int local = 0; local < places_.count_on(host); ++local) {
      const int from = places_.first_on(host) + local;
      if (places_.CarrierOf(local, me_.host) != rank_) continue;
      arrivals[host].push_back(Await(from, call, {outputs[from], each.bytes()}));
    }
  }
  TagHostCall(call);
  const auto here = outputs.subspan(static_cast<std::size_t>(places_.first_on(me_.host)),
                                    static_cast<std::size_t>(host_->size()));
  DS_RETURN_IF_ERROR(host_->AllGather(here, input, each));
  for (int i = 1; i < places_.hosts(); ++i) {
    const int host = (me_.host + i) % places_.hosts();
    DS_RETURN_IF_ERROR(WaitFor(arrivals[host]));
    DS_RETURN_IF_ERROR(ShareGathered(outputs, each, host, call));
  }
  return WaitFor(departures);
}

// Shares the inputs of the ranks of host `from`, which the carriers of this host hold, with all
// ranks of this host.
Status WorldGroup::ShareGathered(RankOutputs outputs, Elements each, int from,
                                 const CallSignature& call) {
  const auto first = static_cast<std::size_t>(places_.first_on(from));
  const auto count = static_cast<std::size_t>(places_.count_on(from));
  const RankOutputs theirs = outputs.subspan(first, count);
  if (places_.count_on(from) == host_->size()) {
    if (host_->size() == 1) return OkStatus();
    TagHostCall(call);
    return host_->AllGather(theirs, theirs[me_.local], each);
  }
  for (std::size_t local = 0; local < count; ++local) {
    const int carrier = static_cast<int>(local) % host_->size();
    DS_RETURN_IF_ERROR(BroadcastOnHost(theirs[local], each, carrier, call));
  }
  return OkStatus();
}

// Sends data along the chain of hosts, which starts at the root's host and wraps around, block by
// block.
Status WorldGroup::Broadcast(std::byte* data, Elements elements, int root) {
  const CallSignature call = Begin(
      {.kind = CallKind::kBroadcast, .type = elements.type, .root = root, .count = elements.count});
  const EndOfCall end{links_};
  const RankPlace source = places_.PlaceOf(root);
  const int hosts = places_.hosts();
  const int distance = (me_.host - source.host + hosts) % hosts;
  const int before = (me_.host - 1 + hosts) % hosts;
  const int after = (me_.host + 1) % hosts;
  const int carrier = source.local % host_->size();
  const std::size_t size = ElementBytes(elements.type);
  const std::size_t per_block = std::max<std::size_t>(1, block_bytes_ / size);
  const std::size_t blocks = Rounds(elements.count, per_block);
  const auto bytes_of = [&](std::size_t index) {
    const Round round = RoundOf(index, per_block, elements.count);
    return std::span(data + round.begin * size, round.count * size);
  };
  Tickets arrivals;
  Tickets departures;
  if (me_.local == carrier && distance > 0) {
    const int from = distance == 1 ? root : places_.CarrierOf(source.local, before);
    for (std::size_t i = 0; i < blocks; ++i) arrivals.push_back(Await(from, call, bytes_of(i)));
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    if (!arrivals.empty()) DS_RETURN_IF_ERROR(links_.Wait(arrivals[i]));
    if (me_.local == carrier && distance < hosts - 1) {
      departures.push_back(Post(places_.CarrierOf(source.local, after), call, bytes_of(i)));
    }
    const std::span<std::byte> block = bytes_of(i);
    DS_RETURN_IF_ERROR(
        BroadcastOnHost(block.data(), {block.size() / size, elements.type}, carrier, call));
  }
  return WaitFor(departures);
}

// Exchanges data by frames between hosts and by shared memory within this host.
Status WorldGroup::Exchange(const AllToAllParts& parts, const CallSignature& call) {
  const EndOfCall end{links_};
  const std::size_t size = ElementBytes(parts.type);
  Tickets tickets;
  const auto call_of = [&](std::uint64_t count) {
    CallSignature each = call;
    each.count = count;
    return each;
  };
  for (int i = 1; i < this->size(); ++i) {
    const int peer = (rank_ + i) % this->size();
    if (IsOnThisHost(peer)) continue;
    const std::uint64_t incoming = parts.output_counts[peer];
    const std::uint64_t outgoing = parts.input_counts[peer];
    tickets.push_back(Await(peer, call_of(incoming), {parts.outputs[peer], incoming * size}));
    tickets.push_back(Post(peer, call_of(outgoing), {parts.inputs[peer], outgoing * size}));
  }
  const auto first = static_cast<std::size_t>(places_.first_on(me_.host));
  const auto count = static_cast<std::size_t>(host_->size());
  TagHostCall(call);
  DS_RETURN_IF_ERROR(host_->AllToAll({.outputs = parts.outputs.subspan(first, count),
                                      .output_counts = parts.output_counts.subspan(first, count),
                                      .inputs = parts.inputs.subspan(first, count),
                                      .input_counts = parts.input_counts.subspan(first, count),
                                      .type = parts.type}));
  return WaitFor(tickets);
}

Status WorldGroup::AllToAll(const AllToAllParts& parts) {
  return Exchange(parts, Begin({.kind = CallKind::kAllToAll, .type = parts.type}));
}

// Gather and scatter are exchanges in which only one rank receives or sends.
Status WorldGroup::Gather(RankOutputs outputs, const std::byte* input, Elements each, int root) {
  const CallSignature call =
      Begin({.kind = CallKind::kGather, .type = each.type, .root = root, .count = each.count});
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::byte*> to(ranks, nullptr);
  if (rank_ == root) to.assign(outputs.begin(), outputs.end());
  const std::vector<const std::byte*> from(ranks, input);
  const std::vector<std::uint64_t> incoming(ranks, rank_ == root ? each.count : 0);
  std::vector<std::uint64_t> outgoing(ranks, 0);
  outgoing[root] = each.count;
  return Exchange({to, incoming, from, outgoing, each.type}, call);
}

Status WorldGroup::Scatter(std::byte* output, RankInputs inputs, Elements each, int root) {
  const CallSignature call =
      Begin({.kind = CallKind::kScatter, .type = each.type, .root = root, .count = each.count});
  const auto ranks = static_cast<std::size_t>(size());
  const std::vector<std::byte*> to(ranks, output);
  std::vector<const std::byte*> from(ranks, nullptr);
  if (rank_ == root) from.assign(inputs.begin(), inputs.end());
  std::vector<std::uint64_t> incoming(ranks, 0);
  incoming[root] = each.count;
  const std::vector<std::uint64_t> outgoing(ranks, rank_ == root ? each.count : 0);
  return Exchange({to, incoming, from, outgoing, each.type}, call);
}

}  // namespace ds::comm
