#pragma once

// CheckConfig: a ds_config file's text in, a checked DsConfig or every reason against it out.
//
// The text is Hjson (base/positioned_json.h), of which JSON is a part. Duplicate and unknown keys,
// wrong types, values out of range, contradictions and features that are not built are errors, all
// of them reported at once. A key at its default is always accepted. Needs no GPU, no model and no
// other host. Pure: no files, no globals, safe from any thread.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/check/issue.h"
#include "runtime/config/check/job_facts.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

struct CheckResult {
  bool ok = false;
  std::vector<Issue> errors;
  std::vector<Issue> warnings;
  DsConfig config;  // meaningful only when ok
  // Every key: {"train_batch_size": {"value": 32, "origin": "ds.json:2:3"}, ...}. The origin is a
  // place in the file, "default", or "derived from ...".
  nlohmann::ordered_json resolved;
  // The keys given as "auto"; `resolved` has what they stand for and why.
  std::vector<std::string> autos;
  // The user's own keys and values, aliases and "auto" resolved, without comments.
  nlohmann::ordered_json given;
};

// Requires facts.world_size >= 1.
CheckResult CheckConfig(std::string_view text, std::string_view file_name, const JobFacts& facts);

// The same where no more than the number of ranks that share the batch is known.
CheckResult CheckConfig(std::string_view text, std::string_view file_name, int world_size);

// The checked config as one line of plain JSON that CheckConfig accepts again, on any world size
// that the batch sizes allow: what the user gave, nothing derived. Requires result.ok.
std::string ToDsConfigJson(const CheckResult& result);

// Makes what `dsrun check --json` prints: {"ok", "errors": [{"key", "message"}], "warnings",
// "config"}.
nlohmann::ordered_json ToCheckReport(const CheckResult& result);

}  // namespace ds::config
