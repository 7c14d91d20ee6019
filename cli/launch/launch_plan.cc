#include "cli/launch/launch_plan.h"

#include <arpa/inet.h>
#include <ifaddrs.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "cli/launch/core_list.h"
#include "cli/launch/resource_filter.h"
#include "runtime/base/files.h"
#include "runtime/base/host_name.h"
#include "runtime/base/parse_number.h"

namespace ds::cli {
namespace {

void AddInterfaceAddresses(std::vector<std::string>* names) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    const void* address = nullptr;
    if (family == AF_INET) {
      address = &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    } else if (family == AF_INET6) {
      address = &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address != nullptr && ::inet_ntop(family, address, text.data(), text.size()) != nullptr) {
      names->emplace_back(text.data());
    }
  }
  ::freeifaddrs(first);
}

std::vector<std::string> NameDevices(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

std::optional<int> AsNumber(std::string_view text) {
  const std::optional<int> value = ParseNumber<int>(text);
  return value.value_or(-1) < 0 ? std::nullopt : value;
}

// Returns the devices in CUDA_VISIBLE_DEVICES. "-1" ends the list, as in CUDA.
std::vector<std::string> SplitDeviceList(std::string_view list) {
  std::vector<std::string> devices;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view device = list.substr(0, comma);
    while (device.starts_with(' ')) device.remove_prefix(1);
    while (device.ends_with(' ')) device.remove_suffix(1);
    if (device == "-1" || device.empty()) break;
    devices.emplace_back(device);
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return devices;
}

// Rejects duplicate devices, because CUDA would then see none.
Status CheckDistinct(const std::vector<std::string>& devices) {
  std::set<std::string_view> seen;
  for (const std::string& device : devices) {
    if (!seen.insert(device).second) {
      return InvalidArgumentError("CUDA_VISIBLE_DEVICES names '" + device + "' twice");
    }
  }
  return OkStatus();
}

HostSlots MakeCpuSlots(const std::string& name, int count) {
  HostSlots host{.host = name};
  for (int i = 0; i < count; ++i) host.slots.push_back(i);
  return host;
}

// Slots are the device numbers. Devices with other names (UUIDs) are numbered by their index.
HostSlots MakeDeviceSlots(const std::string& name, std::vector<std::string> devices) {
  HostSlots host{.host = name};
  const bool numbers = std::all_of(devices.begin(), devices.end(),
                                   [](const std::string& d) { return AsNumber(d).has_value(); });
  for (std::size_t i = 0; i < devices.size(); ++i) {
    host.slots.push_back(numbers ? *AsNumber(devices[i]) : static_cast<int>(i));
  }
  host.devices = std::move(devices);
  return host;
}

// Returns the pool without a hostfile: this host.
StatusOr<HostSlots> MakeLocalPool(const LaunchFlags& flags, const ThisHost& this_host,
                                  const char* visible_devices) {
  const std::vector<std::string> devices = visible_devices == nullptr
                                               ? NameDevices(this_host.gpu_count)
                                               : SplitDeviceList(visible_devices);
  if (flags.device == Device::kCuda && devices.empty()) {
    return InvalidArgumentError(visible_devices == nullptr
                                    ? "--device cuda: this host shows no GPU"
                                    : "--device cuda: CUDA_VISIBLE_DEVICES hides every GPU");
  }
  if (flags.device != Device::kCpu && !devices.empty()) {
    DS_RETURN_IF_ERROR(CheckDistinct(devices));
    return MakeDeviceSlots("localhost", devices);
  }
  return MakeCpuSlots(
      "localhost", flags.total_ranks.value_or(flags.num_gpus.value_or(this_host.numa_node_count)));
}

std::vector<HostSlots> MakeHostfilePool(const std::vector<HostEntry>& entries, Device device) {
  std::vector<HostSlots> pool;
  for (const HostEntry& entry : entries) {
    HostSlots host = MakeCpuSlots(entry.name, entry.slots);
    if (device != Device::kCpu) {
      host.devices = ListDevices(entry);
      if (host.devices.empty()) host.devices = NameDevices(entry.slots);
    }
    pool.push_back(std::move(host));
  }
  return pool;
}

// The entries of a pool by their names, which are distinct.
using EntryIndex = std::unordered_map<std::string_view, const HostEntry*>;

EntryIndex IndexEntries(const std::vector<HostEntry>& entries) {
  EntryIndex index;
  for (const HostEntry& entry : entries) index.emplace(entry.name, &entry);
  return index;
}

struct Selection {
  std::vector<HostSlots> hosts;
  std::vector<HostSlots> spares;
};

Selection SplitSelection(std::vector<HostSlots> pool, const EntryIndex& entries) {
  Selection split;
  for (HostSlots& host : pool) {
    const bool spare = entries.at(host.host)->keys.contains("spare");
    (spare ? split.spares : split.hosts).push_back(std::move(host));
  }
  return split;
}

// --include and --exclude also apply to spares, --num_nodes counts only the others, --num_gpus
// applies to all hosts.
StatusOr<Selection> SelectHosts(const LaunchFlags& flags, const std::vector<HostSlots>& pool,
                                const EntryIndex& entries) {
  const ResourceRequest request{.include = flags.include,
                                .exclude = flags.exclude,
                                .num_nodes = flags.num_nodes,
                                .num_gpus = flags.num_gpus};
  const bool filtered = !flags.include.empty() || !flags.exclude.empty();
  std::vector<HostSlots> left = pool;
  if (filtered) {
    DS_ASSIGN_OR_RETURN(left, SelectSlots(pool, request));
  }
  Selection selection = SplitSelection(std::move(left), entries);
  if (selection.hosts.empty() && !selection.spares.empty()) {
    return InvalidArgumentError(
        "every host is a spare; at least one must run ranks from the start");
  }
  if (filtered) return selection;
  DS_ASSIGN_OR_RETURN(selection.hosts, SelectSlots(selection.hosts, request));
  if (selection.spares.empty()) return selection;
  DS_ASSIGN_OR_RETURN(selection.spares,
                      SelectSlots(selection.spares, {.num_gpus = flags.num_gpus}));
  return selection;
}

// Returns a hint how to add hosts or slots to this host, the pool without a hostfile.
std::string LocalHint(const LaunchFlags& flags, const HostSlots& local) {
  if (flags.num_nodes.value_or(1) > 1) {
    return "; without a hostfile that is this host alone: --hostfile FILE names others";
  }
  const bool asks_by_slot = !flags.include.empty() || !flags.exclude.empty();
  if (!asks_by_slot || !local.devices.empty()) return "";
  return "; without a GPU a host has a slot for each NUMA node: --num_gpus N in place of the "
         "filter starts N CPU ranks, and a hostfile with the line 'localhost slots=N' has N slots "
         "to choose from";
}

// Applies -n: keeps the first `count` slots of the hosts in order, and drops hosts without slots.
Status KeepFirstRanks(int count, std::vector<HostSlots>* hosts) {
  int left = count;
  std::size_t used = 0;
  for (; used < hosts->size() && left > 0; ++used) {
    HostSlots& host = (*hosts)[used];
    const std::size_t taken = std::min(host.slots.size(), static_cast<std::size_t>(left));
    host.slots.resize(taken);
    if (!host.devices.empty()) host.devices.resize(taken);
    left -= static_cast<int>(taken);
  }
  if (left > 0) {
    const int slots = count - left;
    return InvalidArgumentError(
        "-n " + std::to_string(count) + ": there " +
        (slots == 1 ? "is 1 slot" : "are " + std::to_string(slots) + " slots"));
  }
  hosts->resize(used);
  return OkStatus();
}

// Binds cores that are known here. Other hosts' daemons report theirs when the job starts.
Status BindKnownCores(const LaunchFlags& flags, const ThisHost& this_host, LaunchPlan* plan) {
  HostCores available;
  if (!plan->from_hostfile) available = {this_host.topology.cores, this_host.topology.nodes};
  if (!flags.bind_core_list.empty()) {
    DS_ASSIGN_OR_RETURN(available.cores, ParseCoreList(flags.bind_core_list));
  }
  if (!flags.bind_cores_to_rank || available.cores.empty()) return OkStatus();
  for (std::size_t node = 0; node < plan->world.hosts.size(); ++node) {
    DS_RETURN_IF_ERROR(BindCores(available, static_cast<int>(node), &plan->world));
  }
  return OkStatus();
}

}  // namespace

bool ThisHost::IsNamed(std::string_view host) const {
  in_addr address{};
  const bool is_loopback = ::inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 &&
                           (ntohl(address.s_addr) >> IN_CLASSA_NSHIFT) == IN_LOOPBACKNET;
  return is_loopback || std::find(names.begin(), names.end(), host) != names.end();
}

ThisHost ProbeThisHost(const Probe& probe) {
  ThisHost host;
  host.name = HostName("localhost");
  host.names = {"localhost", "::1", host.name, host.name.substr(0, host.name.find('.'))};
  if (probe.addresses) AddInterfaceAddresses(&host.names);
  host.gpu_count = CountNumbered("/dev", "nvidia");
  host.numa_node_count = std::max(1, CountNumbered("/sys/devices/system/node", "node"));
  if (probe.cores) host.topology = ReadCpuTopology();
  return host;
}

WorldPlan PlanWorld(const std::vector<HostSlots>& selected) {
  WorldPlan plan;
  for (const HostSlots& host : selected) {
    const int node_rank = static_cast<int>(plan.hosts.size());
    plan.hosts.push_back({.host = host.host,
                          .slots = host.slots,
                          .devices = host.devices,
                          .first_rank = plan.world_size()});
    for (std::size_t i = 0; i < host.slots.size(); ++i) {
      plan.ranks.push_back({.rank = plan.world_size(),
                            .node_rank = node_rank,
                            .local_rank = static_cast<int>(i),
                            .slot = host.slots[i]});
    }
  }
  return plan;
}

Status BindCores(const HostCores& available, int node_rank, WorldPlan* plan) {
  const JobHost& host = plan->hosts[node_rank];
  StatusOr<std::vector<std::vector<int>>> shares = DivideCores(available.cores, host.rank_count());
  if (!shares.ok()) return shares.status().WithContext("host '" + host.host + "'");
  for (int i = 0; i < host.rank_count(); ++i) {
    PlannedRank& rank = plan->ranks[host.first_rank + i];
    rank.cores = std::move((*shares)[i]);
    rank.memory = ChooseMemory(available.nodes, rank.cores);
  }
  return OkStatus();
}

StatusOr<LaunchPlan> MakeLaunchPlan(const LaunchFlags& flags, const ThisHost& this_host,
                                    const char* visible_devices) {
  LaunchPlan plan{.from_hostfile = flags.hostfile.has_value()};
  std::vector<HostEntry> entries;
  std::vector<HostSlots> pool;
  if (plan.from_hostfile) {
    DS_ASSIGN_OR_RETURN(entries, ReadHostfile(*flags.hostfile));
    pool = MakeHostfilePool(entries, flags.device);
  } else {
    DS_ASSIGN_OR_RETURN(HostSlots local, MakeLocalPool(flags, this_host, visible_devices));
    entries = {{.name = local.host, .slots = static_cast<int>(local.slots.size())}};
    pool = {std::move(local)};
  }
  const EntryIndex entry_index = IndexEntries(entries);
  StatusOr<Selection> selected = SelectHosts(flags, pool, entry_index);
  if (!selected.ok()) {
    const std::string hint = plan.from_hostfile ? "" : LocalHint(flags, pool[0]);
    return InvalidArgumentError(selected.status().message() + hint);
  }
  Selection selection = *std::move(selected);
  if (flags.total_ranks.has_value()) {
    DS_RETURN_IF_ERROR(KeepFirstRanks(*flags.total_ranks, &selection.hosts));
  }
  plan.world = PlanWorld(selection.hosts);
  for (const HostSlots& spare : selection.spares) {
    plan.spares.push_back({.host = spare.host, .slots = spare.slots, .devices = spare.devices});
  }
  for (std::vector<JobHost>* hosts : {&plan.world.hosts, &plan.spares}) {
    for (JobHost& host : *hosts) host.entry = *entry_index.at(host.host);
  }
  DS_RETURN_IF_ERROR(BindKnownCores(flags, this_host, &plan));
  DS_ASSIGN_OR_RETURN(plan.shown, LogFilter::Parse(flags.log_ranks, flags.errors_only));
  DS_RETURN_IF_ERROR(plan.shown.CheckRanks(plan.world.world_size()));
  return plan;
}

bool IsHere(const HostEntry& entry, const ThisHost& this_host) {
  if (!this_host.IsNamed(entry.name)) return false;
  const auto asks_for_ssh = {"port", "user", "identity", "exec", "hostkey"};
  return std::none_of(asks_for_ssh.begin(), asks_for_ssh.end(),
                      [&](const char* key) { return entry.keys.contains(key); });
}

void PlaceHosts(const ThisHost& this_host, LaunchPlan* plan) {
  for (std::vector<JobHost>* hosts : {&plan->world.hosts, &plan->spares}) {
    for (JobHost& host : *hosts) host.remote = !IsHere(host.entry, this_host);
  }
}

Status CheckNamesOfThisHost(const LaunchFlags& flags, const LaunchPlan& plan) {
  if (flags.share_machine) return OkStatus();
  std::string first;
  for (const std::vector<JobHost>* hosts : {&plan.world.hosts, &plan.spares}) {
    for (const JobHost& host : *hosts) {
      if (host.remote) continue;
      if (first.empty()) {
        first = host.host;
        continue;
      }
      return InvalidArgumentError(
          flags.hostfile.value_or("hostfile") + ": " + first + " and " + host.host +
          " are both this machine: their ranks would use the same devices and cores; keep one of "
          "the names, with all slots (slots=), or start the ranks of both with --share_machine");
    }
  }
  return OkStatus();
}

Probe ChooseProbe(const LaunchFlags& flags) {
  return {.cores = flags.bind_cores_to_rank, .addresses = flags.hostfile.has_value()};
}

StatusOr<LaunchPlan> PlanFromThisHost(const LaunchFlags& flags) {
  const ThisHost this_host = ProbeThisHost(ChooseProbe(flags));
  DS_ASSIGN_OR_RETURN(LaunchPlan plan,
                      MakeLaunchPlan(flags, this_host, std::getenv("CUDA_VISIBLE_DEVICES")));
  PlaceHosts(this_host, &plan);
  DS_RETURN_IF_ERROR(CheckNamesOfThisHost(flags, plan));
  return plan;
}

}  // namespace ds::cli
