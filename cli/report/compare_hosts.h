#pragma once

// CompareHosts shows which facts of several hosts differ, and which hosts have which value.
//
// Facts come from other hosts: they may have any value, or none ("unknown"). Pure.

#include <string>
#include <vector>

#include "cli/report/host_report.h"

namespace ds::cli {

struct FactDifference {
  struct Group {
    std::string value;
    std::vector<std::string> hosts;  // in the order of the reports
  };
  std::string name;           // "GPU driver"; the same as in findings
  std::vector<Group> groups;  // in the order of their first hosts
};

// Returns the facts of which at least two hosts have different values.
std::vector<FactDifference> CompareHosts(const std::vector<HostReport>& hosts);

// Shortens a list of names: "a, h0-h6, h9". Only three or more names in a row that differ by
// consecutive numbers at their ends become a range.
std::string FormatHostList(const std::vector<std::string>& hosts);

}  // namespace ds::cli
