#pragma once

// `dsrun report` as people and programs read it. Pure.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report/rows.h"

namespace ds::cli {

// Prints one row a line, 80 columns at most, longer texts wrapped; hints stand below their row. The
// last line sums up.
std::string FormatReportTable(std::string_view host, const std::vector<Row>& rows);

// {"host","level","rows":[{"name","value","level","hint"}]}
nlohmann::ordered_json FormatReportJson(std::string_view host, const std::vector<Row>& rows);

// Lines of at most `width` characters, broken at blanks; a longer word is cut.
std::vector<std::string> Wrap(std::string_view text, std::size_t width);

}  // namespace ds::cli
