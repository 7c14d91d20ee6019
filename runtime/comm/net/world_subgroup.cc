// WorldGroup's subgroups: each has its own shared memory on each host and uses the existing
// connections between hosts.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/fnv.h"
#include "runtime/comm/net/world_group.h"
#include "runtime/comm/shm/subgroup.h"

namespace ds::comm {

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
    const RankPlace place = places_.PlaceOf(member);
    if (place.host == me_.host) here.push_back(place.local);
    if (place.host != last_host) counts.push_back(0);
    ++counts.back();
    last_host = place.host;
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
                        .places = RankPlaces(counts),
                        .block_bytes = block_bytes_,
                        .group = group,
                        .names = names}));
}

}  // namespace ds::comm
