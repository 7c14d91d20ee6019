// Feeds arbitrary text to the filters and lists of the command line: --include and --exclude,
// --bind_core_list, --log_ranks. The first byte chooses which.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/flags/log_filter.h"
#include "cli/launch/core_list.h"
#include "cli/launch/resource_filter.h"
#include "runtime/base/check.h"
#include "runtime/base/number_list.h"

namespace {

using ds::cli::HostSlots;

const std::vector<HostSlots>& Pool() {
  static const std::vector<HostSlots> pool = {
      {.host = "a", .slots = {0, 1, 2, 3}, .devices = {"0", "1", "2", "3"}},
      {.host = "fe80::1", .slots = {0, 1}, .devices = {"GPU-x", "MIG-y"}},
      {.host = "user@b", .slots = {5}, .devices = {}}};
  return pool;
}

void CheckSelection(const std::vector<HostSlots>& selected) {
  DS_CHECK(!selected.empty());
  for (const HostSlots& host : selected) {
    const auto found = std::find_if(Pool().begin(), Pool().end(),
                                    [&](const HostSlots& each) { return each.host == host.host; });
    DS_CHECK(found != Pool().end() && !host.slots.empty());
    DS_CHECK(host.devices.empty() || host.devices.size() == host.slots.size());
    for (const int slot : host.slots) {
      DS_CHECK(std::count(found->slots.begin(), found->slots.end(), slot) == 1);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      if (const auto kept = SelectSlots(Pool(), {.include = text}); kept.ok())
        CheckSelection(*kept);
      break;
    case 1:
      if (const auto kept = SelectSlots(Pool(), {.exclude = text}); kept.ok())
        CheckSelection(*kept);
      break;
    case 2:
      if (const auto cores = ds::cli::ParseCoreList(text); cores.ok()) {
        DS_CHECK(std::is_sorted(cores->begin(), cores->end()));
        DS_CHECK(ds::cli::ParseCoreList(ds::FormatNumberList(*cores)).value() == *cores);
      }
      break;
    default:
      if (const auto filter = ds::cli::LogFilter::Parse(text); filter.ok()) {
        static_cast<void>(filter->Shows(3, false));
        static_cast<void>(filter->CheckRanks(4).ok());
      }
  }
  return 0;
}
