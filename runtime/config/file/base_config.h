#pragma once

// AddBaseConfig merges a base config, for example a recipe, into a job's own config.
//
// The unit is a top-level key: where the job's config gives it, the base's section is dropped as a
// whole. Two sets of keys count as one key each, since a member from the job and another from the
// base would contradict each other: the batch sizes (train_batch_size,
// train_micro_batch_size_per_gpu, gradient_accumulation_steps, elasticity) and the precisions
// (fp16, bf16, torch_autocast). A flag removes the one key that it fills and the keys of its set. A
// key that follows from the flag (the end of a warm-up from the learning rate) becomes "auto". A
// null in the job's config counts as absent.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/job_facts.h"
#include "runtime/config/check/values.h"

namespace ds::config {

// Adds the values of `base` that are in force to `values` and `given`, which ReadValues made from
// the job's own config. The added values have no position in a file; their origin is the base's
// name.
void AddBaseConfig(const BaseConfig& base, const TrainingFlags& flags, Values* values,
                   IssueLog* issues, nlohmann::ordered_json* given);

// Returns `config`, a ds_config, without the keys that these flags fill. A flag given to a resumed
// run thus replaces the run's value instead of having to agree with it.
nlohmann::ordered_json DropFlagKeys(nlohmann::ordered_json config, const TrainingFlags& flags);

// Returns the values of `base` that contradict `facts`, among those that transformers compares with
// the arguments of Trainer (HfTrainerDeepSpeedConfig.fill_match). Use it for a base and flags from
// one source, where neither of the two takes precedence. A flag of the user's own replaces the
// base's value instead.
std::vector<Issue> FindContradictions(const BaseConfig& base, const JobFacts& facts);

// Replaces the values resolved from "auto" (CheckResult::derived) by "auto" again, so that another
// run resolves them anew. Keys that are not in `config` are not added.
nlohmann::ordered_json PutAutosBack(nlohmann::ordered_json config,
                                    const std::vector<std::string>& derived);

}  // namespace ds::config
