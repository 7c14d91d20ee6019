// HostGroup's subgroups: each has its own shared memory, which its ranks exchange at a separate
// meeting.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/fnv.h"
#include "runtime/comm/shm/host_group.h"
#include "runtime/comm/shm/region_exchange.h"
#include "runtime/comm/shm/subgroup.h"

namespace ds::comm {

StatusOr<std::unique_ptr<HostGroup>> HostGroup::MakeHostSubgroup(const std::string& name,
                                                                 const std::vector<int>& members) {
  const auto self = std::find(members.begin(), members.end(), self_.rank);
  DS_CHECK(self != members.end() && std::is_sorted(members.begin(), members.end()));
  HostGroupOptions options = options_;
  options.self = {.rank = static_cast<int>(self - members.begin()),
                  .size = static_cast<int>(members.size())};
  options.names.clear();
  for (const int member : members) options.names.push_back(wait_.NumberOf(member));
  options.family = family();
  // The name has the first member's number, so ranks with the same name but other members meet
  // elsewhere.
  options.meeting = "dsrun-group/" + std::to_string(HashFnv1a(options_.meeting + "/" + name)) +
                    "/" + std::to_string(options.names.front());
  const std::size_t bytes = RegionBytes(options);
  if (members.size() == 1) {
    DS_ASSIGN_OR_RETURN(SharedRegion region, SharedRegion::Private(bytes));
    return std::make_unique<HostGroup>(std::make_shared<SharedRegion>(std::move(region)), options);
  }
  const CallSignature call = JoinCall(name, options.names);
  const MeetingPlace place = {.name = options.meeting,
                              .self = options.self,
                              .timeout = options.timeout,
                              .purpose = call,
                              .names = options.names,
                              .look_around = [&] { return wait_.LookAround(members, call); }};
  StatusOr<SharedRegion> region = ExchangeRegion(place, bytes);
  if (!region.ok()) return region.status().WithContext(Describe(call));
  auto group = std::make_unique<HostGroup>(
      std::make_shared<SharedRegion>(std::move(region).value()), options);
  DS_RETURN_IF_ERROR(group->MeetPeers(options.timeout, place.look_around));
  return group;
}

StatusOr<std::unique_ptr<CpuGroup>> HostGroup::MakeSubgroup(const std::string& name,
                                                            const std::vector<int>& members) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> group, MakeHostSubgroup(name, members));
  return std::unique_ptr<CpuGroup>(std::move(group));
}

}  // namespace ds::comm
