#include "cli/launch/resource_filter.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/base/parse_number.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

using Pool = std::vector<HostSlots>;
// Maps a host to its named slots; none named = all.
using Filter = std::map<std::string, std::set<int>>;

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t start = 0;;) {
    const std::size_t end = text.find(separator, start);
    parts.push_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

// The hosts of a pool by their names: a filter may name each of thousands.
using HostIndex = std::unordered_map<std::string_view, const HostSlots*>;

HostIndex IndexHosts(const Pool& pool) {
  HostIndex index;
  for (const HostSlots& host : pool) index.emplace(host.host, &host);
  return index;
}

// Formats a host's slots for messages: "0-3", "0,2" or "none".
std::string ShowSlots(const std::vector<int>& slots) {
  std::string text;
  for (std::size_t i = 0; i < slots.size();) {
    std::size_t last = i;
    while (last + 1 < slots.size() && slots[last + 1] == slots[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(slots[i]);
    if (last > i) text += "-" + std::to_string(slots[last]);
    i = last + 1;
  }
  return text.empty() ? "none" : text;
}

StatusOr<int> ParseSlot(std::string_view digits) {
  const std::optional<int> value = ParseNumber<int>(digits);
  if (value.value_or(-1) < 0) {
    return InvalidArgumentError("'" + std::string(digits) + "' is not a slot number");
  }
  return *value;
}

// Parses "2" or "0-3". Every number must be a slot of `host`.
Status AddSlots(std::string_view text, const HostSlots& host, std::set<int>* slots) {
  const std::size_t dash = text.find('-', 1);
  DS_ASSIGN_OR_RETURN(const int first, ParseSlot(text.substr(0, dash)));
  int last = first;
  if (dash != std::string_view::npos) {
    DS_ASSIGN_OR_RETURN(last, ParseSlot(text.substr(dash + 1)));
  }
  if (last < first)
    return InvalidArgumentError("'" + std::string(text) + "' ends before it starts");
  for (int slot = first;; ++slot) {
    if (std::find(host.slots.begin(), host.slots.end(), slot) == host.slots.end()) {
      return InvalidArgumentError("host '" + host.host + "' has no slot " + std::to_string(slot) +
                                  " (its slots: " + ShowSlots(host.slots) + ")");
    }
    slots->insert(slot);
    if (slot == last) return OkStatus();
  }
}

Status UnknownHost(const HostIndex& hosts, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [host, slots] : hosts) names.emplace_back(host);
  std::sort(names.begin(), names.end());
  return InvalidArgumentError("no host '" + name + "' among the hosts" + DidYouMean(name, names));
}

Status AddNode(std::string_view node, const HostIndex& hosts, Filter* filter) {
  if (node.empty()) return InvalidArgumentError("there is an empty host name in it");
  if (hosts.contains(node)) {
    (*filter)[std::string(node)];
    return OkStatus();
  }
  const std::size_t colon = node.rfind(':');
  const std::string name(node.substr(0, colon));
  const auto host = hosts.find(name);
  if (host == hosts.end()) return UnknownHost(hosts, name);
  for (const std::string_view slots : Split(node.substr(colon + 1), ',')) {
    DS_RETURN_IF_ERROR(AddSlots(slots, *host->second, &(*filter)[name]));
  }
  return OkStatus();
}

StatusOr<Filter> ParseFilter(std::string_view text, const Pool& pool) {
  const HostIndex hosts = IndexHosts(pool);
  Filter filter;
  for (const std::string_view node : Split(text, '@')) {
    DS_RETURN_IF_ERROR(AddNode(node, hosts, &filter));
  }
  return filter;
}

// Returns the pool without the slots that `keep` rejects, and without hosts that have no slot left.
template <typename Keep>
Pool KeepSlots(const Pool& pool, const Keep& keep) {
  Pool kept;
  for (const HostSlots& host : pool) {
    HostSlots left{.host = host.host};
    for (std::size_t i = 0; i < host.slots.size(); ++i) {
      if (!keep(host, host.slots[i])) continue;
      left.slots.push_back(host.slots[i]);
      if (!host.devices.empty()) left.devices.push_back(host.devices[i]);
    }
    if (!left.slots.empty()) kept.push_back(std::move(left));
  }
  return kept;
}

StatusOr<Pool> ApplyFilter(const Pool& pool, const ResourceRequest& request) {
  const bool including = !request.include.empty();
  const std::string& text = including ? request.include : request.exclude;
  const std::string flag = including ? "--include " : "--exclude ";
  StatusOr<Filter> filter = ParseFilter(text, pool);
  if (!filter.ok()) return filter.status().WithContext(flag + text);
  const auto named = [&](const HostSlots& host, int slot) {
    const auto found = filter->find(host.host);
    return found != filter->end() && (found->second.empty() || found->second.contains(slot));
  };
  Pool kept = KeepSlots(
      pool, [&](const HostSlots& host, int slot) { return named(host, slot) == including; });
  if (kept.empty()) return InvalidArgumentError(flag + text + ": no slot is left to run on");
  return kept;
}

StatusOr<Pool> TakeFirst(Pool pool, const ResourceRequest& request) {
  if (request.num_nodes.has_value()) {
    const auto count = static_cast<std::size_t>(*request.num_nodes);
    if (count > pool.size()) {
      return InvalidArgumentError(
          "--num_nodes " + std::to_string(count) + ": there " +
          (pool.size() == 1 ? "is 1 host" : "are only " + std::to_string(pool.size()) + " hosts"));
    }
    pool.resize(count);
  }
  if (!request.num_gpus.has_value()) return pool;
  const auto count = static_cast<std::size_t>(*request.num_gpus);
  for (HostSlots& host : pool) {
    if (count > host.slots.size()) {
      return InvalidArgumentError("--num_gpus " + std::to_string(count) + ": host '" + host.host +
                                  "' has " + std::to_string(host.slots.size()) +
                                  (host.slots.size() == 1 ? " slot" : " slots"));
    }
    host.slots.resize(count);
    if (!host.devices.empty()) host.devices.resize(count);
  }
  return pool;
}

}  // namespace

StatusOr<Pool> SelectSlots(const Pool& pool, const ResourceRequest& request) {
  const bool filtered = !request.include.empty() || !request.exclude.empty();
  if (!request.include.empty() && !request.exclude.empty()) {
    return InvalidArgumentError("--include and --exclude exclude one another; give one of them");
  }
  if (filtered && (request.num_nodes.has_value() || request.num_gpus.has_value())) {
    return InvalidArgumentError(
        "--num_nodes and --num_gpus cannot be combined with --include or --exclude");
  }
  if (filtered) return ApplyFilter(pool, request);
  Pool all = KeepSlots(pool, [](const HostSlots&, int) { return true; });
  if (all.empty()) return InvalidArgumentError("no host has a slot to run on");
  return TakeFirst(std::move(all), request);
}

}  // namespace ds::cli
