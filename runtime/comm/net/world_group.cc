#include "runtime/comm/net/world_group.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/fnv.h"
#include "runtime/base/log.h"
#include "runtime/comm/net/chain_reduction.h"
#include "runtime/comm/shm/rounds.h"
#include "runtime/comm/shm/subgroup.h"

namespace ds::comm {
namespace {

std::vector<int> NamesOf(const WorldGroupOptions& options) {
  if (!options.names.empty()) return options.names;
  std::vector<int> names(static_cast<std::size_t>(options.layout.size()));
  std::iota(names.begin(), names.end(), 0);
  return names;
}

// Returns a lane's part of a block.
Round LaneOf(const Round& block, int lane, int lanes) {
  const auto parts = static_cast<std::size_t>(lanes);
  const std::size_t per_lane = (block.count + parts - 1) / parts;
  const Round part = RoundOf(static_cast<std::size_t>(lane), per_lane, block.count);
  return {.begin = block.begin + part.begin, .count = part.count};
}

}  // namespace

WorldGroup::WorldGroup(std::unique_ptr<HostGroup> host, std::shared_ptr<PeerLinks> links,
                       const WorldGroupOptions& options)
    : CpuGroup(host->family()),
      host_(std::move(host)),
      links_(std::move(links), options.group, NamesOf(options)),
      rank_(options.rank),
      layout_(options.layout),
      me_(layout_.LocationOf(options.rank)),
      block_bytes_(options.block_bytes),
      member_(family().get(), this) {
  DS_CHECK(host_->rank() == me_.local && host_->size() == layout_.count_on(me_.host));
  links_.all()->ListenForEnd([all = family()](const std::string& cause) { all->Abort(cause); });
  links_.all()->ListenForAbsence(
      [all = family()](const Absence& found) { all->NoteAbsence(found); });
  host_->ListenForLongWaits([all = links_.all()] { all->NotifyWaiting(); });
}

WorldGroup::~WorldGroup() {
  LogDebug("rank " + std::to_string(rank_) + " sent " + std::to_string(links().bytes().sent) +
           " bytes to other hosts");
}

CallSignature WorldGroup::Begin(CallSignature call) {
  call.tag = std::exchange(next_tag_, {});
  return call;
}

void WorldGroup::TagHostCall(const CallSignature& call) {
  host_->TagNextCall(CallTag(Describe(call)));
}

PeerLinks::Ticket WorldGroup::Post(int peer, const CallSignature& call,
                                   std::span<const std::byte> bytes) {
  return links_.Send({.peer = peer, .call = call}, bytes);
}

PeerLinks::Ticket WorldGroup::Await(int peer, const CallSignature& call,
                                    std::span<std::byte> bytes) {
  return links_.Receive({.peer = peer, .call = call}, bytes);
}

Status WorldGroup::WaitFor(const Tickets& tickets) {
  for (const PeerLinks::Ticket& ticket : tickets) DS_RETURN_IF_ERROR(links_.Wait(ticket));
  return OkStatus();
}

Status WorldGroup::BroadcastOnHost(std::byte* data, Elements elements, int local,
                                   const CallSignature& call) {
  if (host_->size() == 1) return OkStatus();
  TagHostCall(call);
  return host_->Broadcast(data, elements, local);
}

PeerLinks::Ticket WorldGroup::PostMessage(const OutgoingMessage& message, const CallTag& tag) {
  return links_.Send({.peer = message.peer,
                      .channel = FrameChannel::kMessage,
                      .call = {.kind = CallKind::kSend,
                               .type = message.elements.type,
                               .root = message.peer,
                               .count = message.elements.count,
                               .tag = tag}},
                     {message.data, message.elements.bytes()});
}

PeerLinks::Ticket WorldGroup::AwaitMessage(const IncomingMessage& message, const CallTag& tag) {
  return links_.Receive({.peer = message.peer,
                         .channel = FrameChannel::kMessage,
                         .call = {.kind = CallKind::kSend,
                                  .type = message.elements.type,
                                  .root = rank_,
                                  .count = message.elements.count,
                                  .tag = tag}},
                        {message.data, message.elements.bytes()});
}

Status WorldGroup::SendOnHost(const OutgoingMessage& message, const CallTag& tag) {
  host_->TagNextCall(tag);
  return host_->Send(message.data, message.elements, layout_.LocationOf(message.peer).local);
}

Status WorldGroup::ReceiveOnHost(const IncomingMessage& message, const CallTag& tag) {
  host_->TagNextCall(tag);
  return host_->Receive(message.data, message.elements, layout_.LocationOf(message.peer).local);
}

Status WorldGroup::Send(const std::byte* data, Elements elements, int peer) {
  const CallTag tag = std::exchange(next_tag_, {});
  const OutgoingMessage message{data, elements, peer};
  if (IsOnThisHost(peer)) return SendOnHost(message, tag);
  return links_.Wait(PostMessage(message, tag));
}

Status WorldGroup::Receive(std::byte* data, Elements elements, int peer) {
  const CallTag tag = std::exchange(next_tag_, {});
  const IncomingMessage message{data, elements, peer};
  if (IsOnThisHost(peer)) return ReceiveOnHost(message, tag);
  return links_.Wait(AwaitMessage(message, tag));
}

// Messages between hosts are posted, so that exchanges within the host do not wait for them.
Status WorldGroup::SendReceive(const OutgoingMessage& outgoing, const IncomingMessage& incoming) {
  const CallTag tag = std::exchange(next_tag_, {});
  const EndOfCall end{links_};
  const bool sends_here = IsOnThisHost(outgoing.peer);
  const bool receives_here = IsOnThisHost(incoming.peer);
  if (sends_here && receives_here) {
    OutgoingMessage to_host = outgoing;
    IncomingMessage from_host = incoming;
    to_host.peer = layout_.LocationOf(outgoing.peer).local;
    from_host.peer = layout_.LocationOf(incoming.peer).local;
    host_->TagNextCall(tag);
    return host_->SendReceive(to_host, from_host);
  }
  Tickets tickets;
  if (!sends_here) tickets.push_back(PostMessage(outgoing, tag));
  if (!receives_here) tickets.push_back(AwaitMessage(incoming, tag));
  if (sends_here) DS_RETURN_IF_ERROR(SendOnHost(outgoing, tag));
  if (receives_here) DS_RETURN_IF_ERROR(ReceiveOnHost(incoming, tag));
  return WaitFor(tickets);
}

// Collectives that only move data.

// Each rank sends its input to the carrier of its lane on every other host, which shares it within
// that host.
Status WorldGroup::AllGather(RankOutputs outputs, const std::byte* input, Elements each) {
  const CallSignature call =
      Begin({.kind = CallKind::kAllGather, .type = each.type, .count = each.count});
  const EndOfCall end{links_};
  std::vector<Tickets> arrivals(static_cast<std::size_t>(layout_.hosts()));
  Tickets departures;
  for (int host = 0; host < layout_.hosts(); ++host) {
    if (host == me_.host) continue;
    departures.push_back(Post(layout_.CarrierOf(me_.local, host), call, {input, each.bytes()}));
    for (int local = 0; local < layout_.count_on(host); ++local) {
      const int from = layout_.first_on(host) + local;
      if (layout_.CarrierOf(local, me_.host) != rank_) continue;
      arrivals[host].push_back(Await(from, call, {outputs[from], each.bytes()}));
    }
  }
  TagHostCall(call);
  const auto here = outputs.subspan(static_cast<std::size_t>(layout_.first_on(me_.host)),
                                    static_cast<std::size_t>(host_->size()));
  DS_RETURN_IF_ERROR(host_->AllGather(here, input, each));
  for (int i = 1; i < layout_.hosts(); ++i) {
    const int host = (me_.host + i) % layout_.hosts();
    DS_RETURN_IF_ERROR(WaitFor(arrivals[host]));
    DS_RETURN_IF_ERROR(ShareGathered(outputs, each, host, call));
  }
  return WaitFor(departures);
}

// Shares the inputs of the ranks of host `from`, which the carriers of this host hold, with all
// ranks of this host.
Status WorldGroup::ShareGathered(RankOutputs outputs, Elements each, int from,
                                 const CallSignature& call) {
  const auto first = static_cast<std::size_t>(layout_.first_on(from));
  const auto count = static_cast<std::size_t>(layout_.count_on(from));
  const RankOutputs theirs = outputs.subspan(first, count);
  if (layout_.count_on(from) == host_->size()) {
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
  const RankLocation source = layout_.LocationOf(root);
  const int hosts = layout_.hosts();
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
    const int from = distance == 1 ? root : layout_.CarrierOf(source.local, before);
    for (std::size_t i = 0; i < blocks; ++i) arrivals.push_back(Await(from, call, bytes_of(i)));
  }
  for (std::size_t i = 0; i < blocks; ++i) {
    if (!arrivals.empty()) DS_RETURN_IF_ERROR(links_.Wait(arrivals[i]));
    if (me_.local == carrier && distance < hosts - 1) {
      departures.push_back(Post(layout_.CarrierOf(source.local, after), call, bytes_of(i)));
    }
    const std::span<std::byte> block = bytes_of(i);
    DS_RETURN_IF_ERROR(
        BroadcastOnHost(block.data(), {block.size() / size, elements.type}, carrier, call));
  }
  return WaitFor(departures);
}

// Exchanges data by frames between hosts and by shared memory within this host.
Status WorldGroup::Exchange(const AllToAllBuffers& parts, const CallSignature& call) {
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
  const auto first = static_cast<std::size_t>(layout_.first_on(me_.host));
  const auto count = static_cast<std::size_t>(host_->size());
  TagHostCall(call);
  DS_RETURN_IF_ERROR(host_->AllToAll({.outputs = parts.outputs.subspan(first, count),
                                      .output_counts = parts.output_counts.subspan(first, count),
                                      .inputs = parts.inputs.subspan(first, count),
                                      .input_counts = parts.input_counts.subspan(first, count),
                                      .type = parts.type}));
  return WaitFor(tickets);
}

Status WorldGroup::AllToAll(const AllToAllBuffers& parts) {
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

// Reductions.

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
  const int lanes = layout_.lanes();
  const std::size_t per_lane = std::max<std::size_t>(1, block_bytes_ / size);
  const std::size_t per_block = per_lane * static_cast<std::size_t>(lanes);
  const std::vector<int> mine = layout_.LanesOf(rank_);
  const bool is_last = me_.host == layout_.hosts() - 1;
  const auto bytes_of = [&](std::size_t block, int lane) {
    const Round part = LaneOf(RoundOf(block, per_block, elements.count), lane, lanes);
    return std::span(data + part.begin * size, part.count * size);
  };
  std::vector<Tickets> arrivals(Rounds(elements.count, per_block));
  for (std::size_t block = 0; !is_last && block < arrivals.size(); ++block) {
    for (const int lane : mine) {
      const int from = layout_.CarrierOf(lane, me_.host + 1);
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
              Post(layout_.CarrierOf(lane, me_.host - 1), call, bytes_of(block, lane)));
        }
        const Round round = RoundOf(block, per_block, elements.count);
        return ShareLanes(data + round.begin * size, {round.count, elements.type}, call);
      }};
  DS_RETURN_IF_ERROR(ChainReduction({*host_, links_, layout_, rank_, call, memory_}, plan).Run());
  return WaitFor(departures);
}

// Shares each lane's part of a block, which its carrier holds, with all ranks of this host.
Status WorldGroup::ShareLanes(std::byte* data, Elements elements, const CallSignature& call) {
  if (host_->size() == 1) return OkStatus();
  const int lanes = layout_.lanes();
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
  const auto hosts = static_cast<std::size_t>(layout_.hosts());
  const std::size_t per_block = std::max<std::size_t>(1, block_bytes_ / size / hosts);
  const int last = layout_.hosts() - 1;
  const std::size_t blocks = Rounds(each.count, per_block);
  Tickets arrivals;
  for (std::size_t block = 0; me_.host != last && block < blocks; ++block) {
    const Round round = RoundOf(block, per_block, each.count);
    arrivals.push_back(Await(layout_.CarrierOf(me_.local, last), call,
                             {output + round.begin * size, round.count * size}));
  }
  const ReducePlan plan = {.blocks = blocks,
                           .lane_elements = per_block * hosts,
                           .segments =
                               [&](std::size_t block, int lane) {
                                 const Round round = RoundOf(block, per_block, each.count);
                                 std::vector<ReduceSegment> segments;
                                 for (int host = 0; host <= last; ++host) {
                                   if (lane >= layout_.count_on(host)) continue;
                                   const int owner = layout_.first_on(host) + lane;
                                   segments.push_back({.input = inputs[owner] + round.begin * size,
                                                       .result = output + round.begin * size,
                                                       .count = round.count,
                                                       .receiver = host == last ? -1 : owner});
                                 }
                                 return segments;
                               },
                           .finish = nullptr};
  DS_RETURN_IF_ERROR(ChainReduction({*host_, links_, layout_, rank_, call, memory_}, plan).Run());
  return WaitFor(arrivals);
}

// Subgroups: each has its own shared memory on each host and uses the existing connections between
// hosts.

// Sends this member's list to each member on another host, and compares the received lists.
Status WorldGroup::CompareMembers(const std::string& name, const std::vector<int>& members,
                                  GroupLinks* links) {
  const EndOfCall end{*links};
  const CallSignature call = JoinCall(name, links->ranks());
  Tickets tickets;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (IsOnThisHost(members[i])) continue;
    const Frame frame{.peer = static_cast<int>(i), .channel = FrameChannel::kMessage, .call = call};
    tickets.push_back(links->Send(frame, {}));
    tickets.push_back(links->Receive(frame, {}));
  }
  for (const PeerLinks::Ticket& ticket : tickets) DS_RETURN_IF_ERROR(links->Wait(ticket));
  return OkStatus();
}

StatusOr<std::unique_ptr<CpuGroup>> WorldGroup::MakeSubgroup(const std::string& name,
                                                             const std::vector<int>& members) {
  const auto self = std::find(members.begin(), members.end(), rank_);
  DS_CHECK(self != members.end() && std::is_sorted(members.begin(), members.end()));
  std::vector<int> here;  // as numbered by the host's group
  std::vector<int> counts;
  std::vector<int> names;
  int last_host = -1;
  for (const int member : members) {
    const RankLocation location = layout_.LocationOf(member);
    if (location.host == me_.host) here.push_back(location.local);
    if (location.host != last_host) counts.push_back(0);
    ++counts.back();
    last_host = location.host;
    names.push_back(links_.ranks()[static_cast<std::size_t>(member)]);
  }
  if (here.size() == members.size()) return host_->MakeSubgroup(name, here);
  const GroupId group = HashFnv1a(std::to_string(links_.group()) + "/" + name);
  GroupLinks links(links_.all(), group, names);
  DS_RETURN_IF_ERROR(CompareMembers(name, members, &links));
  DS_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> host, host_->MakeHostSubgroup(name, here));
  return std::unique_ptr<CpuGroup>(std::make_unique<WorldGroup>(
      std::move(host), links_.all(),
      WorldGroupOptions{.rank = static_cast<int>(self - members.begin()),
                        .layout = RankLocations(counts),
                        .block_bytes = block_bytes_,
                        .group = group,
                        .names = names}));
}

}  // namespace ds::comm
