#pragma once

// AddBaseConfig lays a job's own config over a base config, as a user lays a ds_config over a
// recipe.
//
// A key at the top level holds as a whole: where the job's config gives it, the base's is gone,
// with all that is in its section. Two sets of keys are one in this: the sizes of the batch
// (train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps, elasticity) and
// the precisions (fp16, bf16, torch_autocast), since one of the job's and another of the base's
// would contradict each other. A flag takes away the one key that it fills and those of its set. A
// key that follows from the flag (the end of a warm-up from the learning rate) becomes "auto". What
// is null in the job's config is absent there, as everywhere.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/config/check/issue_log.h"
#include "runtime/config/check/job_facts.h"
#include "runtime/config/check/values.h"

namespace ds::config {

// Requires that `values` and `given` are what ReadValues made of the job's own config; adds what of
// `base` is in force to both. Its values have no place in a file: their origin is the base's name.
void AddBaseConfig(const BaseConfig& base, const TrainingFlags& flags, Values* values,
                   IssueLog* issues, nlohmann::ordered_json* given);

// Makes of `config`, a ds_config, one without the keys that these flags fill: flags that are given
// to a run that goes on replace what it has, in place of having to agree with it.
nlohmann::ordered_json DropWhatFlagsFill(nlohmann::ordered_json config, const TrainingFlags& flags);

// The values of a base that are not what `facts` say, where transformers compares them with the
// arguments of Trainer (HfTrainerDeepSpeedConfig.fill_match). A flag of the user's replaces them;
// of a base and flags that come from one source, neither is what was asked for.
std::vector<Issue> FindContradictions(const BaseConfig& base, const JobFacts& facts);

// Puts "auto" back in the place of values that it stood for (CheckResult::derived), so that another
// run finds them anew. Keys that are not in `config` stay away.
nlohmann::ordered_json PutAutosBack(nlohmann::ordered_json config,
                                    const std::vector<std::string>& derived);

}  // namespace ds::config
