#include "runtime/comm/net/world_group.h"

#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace ds::comm {

WorldGroup::WorldGroup(std::unique_ptr<HostGroup> host, std::unique_ptr<PeerLinks> links,
                       const WorldGroupOptions& options)
    : host_(std::move(host)),
      links_(std::move(links)),
      rank_(options.rank),
      places_(options.places),
      me_(places_.PlaceOf(options.rank)),
      block_bytes_(options.block_bytes) {
  DS_CHECK(host_->rank() == me_.local && host_->size() == places_.count_on(me_.host));
}

WorldGroup::~WorldGroup() {
  LogDebug("rank " + std::to_string(rank_) + " sent " + std::to_string(links_->bytes_sent()) +
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
  return links_->Send({.peer = peer, .call = call}, bytes);
}

PeerLinks::Ticket WorldGroup::Await(int peer, const CallSignature& call,
                                    std::span<std::byte> bytes) {
  return links_->Receive({.peer = peer, .call = call}, bytes);
}

Status WorldGroup::WaitFor(const Tickets& tickets) {
  for (const PeerLinks::Ticket& ticket : tickets) DS_RETURN_IF_ERROR(links_->Wait(ticket));
  return OkStatus();
}

Status WorldGroup::BroadcastOnHost(std::byte* data, Elements elements, int local,
                                   const CallSignature& call) {
  if (host_->size() == 1) return OkStatus();
  TagHostCall(call);
  return host_->Broadcast(data, elements, local);
}

Status WorldGroup::Send(const std::byte* data, Elements elements, int peer) {
  if (IsOnThisHost(peer)) return host_->Send(data, elements, places_.PlaceOf(peer).local);
  const CallSignature call = {
      .kind = CallKind::kSend, .type = elements.type, .root = peer, .count = elements.count};
  return links_->Wait(links_->Send({.peer = peer, .channel = FrameChannel::kMessage, .call = call},
                                   {data, elements.bytes()}));
}

Status WorldGroup::Receive(std::byte* data, Elements elements, int peer) {
  if (IsOnThisHost(peer)) return host_->Receive(data, elements, places_.PlaceOf(peer).local);
  const CallSignature call = {
      .kind = CallKind::kSend, .type = elements.type, .root = rank_, .count = elements.count};
  return links_->Wait(links_->Receive(
      {.peer = peer, .channel = FrameChannel::kMessage, .call = call}, {data, elements.bytes()}));
}

}  // namespace ds::comm
