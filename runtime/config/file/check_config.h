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
  // The config in force and where its values are from (resolved_config.h).
  nlohmann::ordered_json resolved;
  nlohmann::ordered_json origins;
  // The keys given as "auto"; `resolved` has what they stand for and why.
  std::vector<std::string> autos;
  // The user's own keys and values, aliases and "auto" resolved, without comments.
  nlohmann::ordered_json given;
  // The keys of `given` whose values stand for "auto", or for a share of all steps: they hold for
  // this model and these steps, and another run finds them anew (PutAutosBack).
  std::vector<std::string> derived;
  // Says that the schedule ends before the run does, as one of the warnings; "" where it does not,
  // and where the steps are not known.
  std::string early_end;
};

// Requires facts.world_size >= 1.
CheckResult CheckConfig(std::string_view text, std::string_view file_name, const JobFacts& facts);

// The same where no more than the number of ranks is known.
CheckResult CheckConfig(std::string_view text, std::string_view file_name, int world_size);

// The checked config as one line of plain JSON that CheckConfig accepts again, on any world size
// that the batch sizes allow: what the user gave, nothing derived. Requires result.ok.
std::string ToDsConfigJson(const CheckResult& result);

// Makes a run's config.resolved.json, which `dsrun check --json` prints of a good config: the
// config in force, a ds_config of its own, and beside its keys {"origins": {"optimizer.params.lr":
// "ds.json:3:12", ...}}, which CheckConfig and DeepSpeed pass over.
nlohmann::ordered_json ToResolvedConfigJson(const CheckResult& result);

// Makes what `dsrun check --json` prints of a bad config: {"ok", "errors": [{"key", "message"}],
// "warnings"}.
nlohmann::ordered_json ToErrorReport(const CheckResult& result);

}  // namespace ds::config
