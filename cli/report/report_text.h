#pragma once

// The output of `dsrun report`, for people and for programs.
//
// Texts of hosts are made safe for a terminal, and lines have at most 80 columns. Pure.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/remote/host_failure.h"
#include "cli/report/host_report.h"

namespace ds::cli {

// Returns the worst level of all findings.
v1::Finding::Level FindWorstLevel(const std::vector<v1::Finding>& findings);
// A host that cannot be used counts as FAIL.
v1::Finding::Level FindWorstLevel(const std::vector<HostReport>& hosts,
                                  const std::vector<FailedHost>& failed);

// Formats one finding per row; longer texts are wrapped. Hints follow their row. The last line is a
// summary.
std::string FormatReportTable(const HostReport& host);

// {"host","level","rows":[{"name","value","level","hint"}]}
nlohmann::ordered_json FormatReportJson(const HostReport& host);

// Formats the differences between the hosts, the findings with their hosts, and the hosts that
// cannot be used.
std::string FormatHostsTable(const std::vector<HostReport>& hosts,
                             const std::vector<FailedHost>& failed);

// {"level","differences":[{"name","values":[{"value","hosts"}]}],"hosts":[as FormatReportJson],
// "failed":[{"host","kind","message","hint"}]}
nlohmann::ordered_json FormatHostsJson(const std::vector<HostReport>& hosts,
                                       const std::vector<FailedHost>& failed);

}  // namespace ds::cli
