#pragma once

// Orders the failures of ranks on several hosts by the time at which they happened. The order of
// their reports says little: the report of a rank's end follows all of its output.
//
// Pure. Thread-safe.

#include <optional>
#include <string>
#include <vector>

#include "cli/host/host_clock.h"
#include "proto/dsrun.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

struct FailedExit {
  std::string host;
  v1::RankExited exit;
  // The time of the end; nullopt: unknown. Ends on one host are compared by the clock of the host.
  std::optional<TimeRange> when;
};

// Returns the first failure. Of those that the clocks do not order it is the first in `failures`,
// which are in the order of arrival. nullptr: there are none.
const FailedExit* FindFirst(const std::vector<const FailedExit*>& failures);

// Says how much later than `first` the next of the failures happened: "rank 1 on beta failed 12.0
// ms later". "" = there is no other.
std::string DescribeNext(const FailedExit& first, const std::vector<const FailedExit*>& failures);

}  // namespace ds::cli
