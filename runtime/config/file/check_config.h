#pragma once

// CheckConfig turns the text of a ds_config file into a checked DsConfig, or into the list of all
// its errors.
//
// The text is Hjson (base/positioned_json.h), a superset of JSON. Duplicate and unknown keys, wrong
// types, values out of range, contradictions and features that are not built are errors; all are
// reported at once. A key at its default is always accepted. Needs no GPU, no model and no other
// host. Pure: no files, no globals. Thread-safe.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/job_facts.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

struct CheckResult {
  bool ok = false;
  std::vector<Issue> errors;
  std::vector<Issue> warnings;
  DataEfficiency data_efficiency;  // as `config`
  DsConfig config;                 // meaningful only when ok
  // The config in force and the origin of each value (resolved_config.h).
  nlohmann::ordered_json resolved;
  nlohmann::ordered_json origins;
  // The keys given as "auto"; `resolved` and `origins` have their values and why.
  std::vector<std::string> autos;
  // The user's own keys and values, aliases and "auto" resolved, without comments.
  nlohmann::ordered_json given;
  // The keys of `given` with a value that was resolved from "auto" or from a fraction of all steps.
  // These values hold for this model and these steps only; another run resolves them anew
  // (PutAutosBack).
  std::vector<std::string> derived;
  // The warning that the schedule ends before the run does; "" where it does not, or where the
  // number of steps is unknown.
  std::string early_end;
};

// Checks a config. Requires facts.world_size >= 1.
CheckResult CheckConfig(std::string_view text, std::string_view file_name, const JobFacts& facts);

// Checks a config where only the number of ranks is known.
CheckResult CheckConfig(std::string_view text, std::string_view file_name, int world_size);

// Returns the checked config as one line of plain JSON. It holds only the user's values, nothing
// derived, so CheckConfig accepts it again on any world size that the batch sizes allow. Requires
// result.ok.
std::string ToDsConfigJson(const CheckResult& result);

// Returns the content of a run's config.resolved.json, which `dsrun check --json` also prints for a
// valid config. It is a ds_config of its own with one more key, {"origins": {"optimizer.params.lr":
// "ds.json:3:12", ...}}, which CheckConfig and DeepSpeed ignore.
nlohmann::ordered_json ToResolvedConfigJson(const CheckResult& result);

// Returns the output of `dsrun check --json` for an invalid config: {"ok", "errors": [{"key",
// "message"}], "warnings"}.
nlohmann::ordered_json ToErrorReport(const CheckResult& result);

}  // namespace ds::config
