#include "runtime/comm/net/world_group.h"

#include <numeric>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace ds::comm {

namespace {

std::vector<int> NamesOf(const WorldGroupOptions& options) {
  if (!options.names.empty()) return options.names;
  std::vector<int> names(static_cast<std::size_t>(options.places.size()));
  std::iota(names.begin(), names.end(), 0);
  return names;
}

}  // namespace

WorldGroup::WorldGroup(std::unique_ptr<HostGroup> host, std::shared_ptr<PeerLinks> links,
                       const WorldGroupOptions& options)
    : CpuGroup(host->family()),
      host_(std::move(host)),
      links_(std::move(links), options.group, NamesOf(options)),
      rank_(options.rank),
      places_(options.places),
      me_(places_.PlaceOf(options.rank)),
      block_bytes_(options.block_bytes),
      member_(family().get(), this) {
  DS_CHECK(host_->rank() == me_.local && host_->size() == places_.count_on(me_.host));
  links_.all()->ListenForEnd([all = family()](const std::string& cause) { all->Abort(cause); });
  links_.all()->ListenForAbsence(
      [all = family()](const Absence& found) { all->NoteAbsence(found); });
  host_->ListenForLongWaits([all = links_.all()] { all->TellThatItWaits(); });
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
  return host_->Send(message.data, message.elements, places_.PlaceOf(message.peer).local);
}

Status WorldGroup::ReceiveOnHost(const IncomingMessage& message, const CallTag& tag) {
  host_->TagNextCall(tag);
  return host_->Receive(message.data, message.elements, places_.PlaceOf(message.peer).local);
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
    to_host.peer = places_.PlaceOf(outgoing.peer).local;
    from_host.peer = places_.PlaceOf(incoming.peer).local;
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

}  // namespace ds::comm
