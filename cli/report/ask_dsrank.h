#pragma once

#include <filesystem>
#include <string_view>

#include "cli/report/host_facts.h"

namespace ds::cli {

// Starts `dsrank facts` and reads its answer. What goes wrong is DsrankFacts::problem.
DsrankFacts AskDsrank(const std::filesystem::path& dsrank);

// The answer alone. A missing field stays empty; text that is no JSON object is a problem.
DsrankFacts ParseDsrankFacts(std::string_view json_text);

}  // namespace ds::cli
