#pragma once

// ZenFlow's schedule: which of a matrix's columns are updated in every step, when they are chosen
// anew, and when everything else is updated. Pure; the rule is DeepSpeed's (runtime/zenflow), where
// a step is what it calls a micro-step.
//
// A column of a matrix of torch::nn::Linear belongs to one of its inputs. What is no matrix is
// always important.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/config/ds_config.h"

namespace ds::zero {

struct ZenFlowStep {
  bool has_important = false;  // updates them: the warm-up is over
  bool selects = false;        // chooses the columns first, whose moments are zeros then
  // Updates everything else by the mean gradient of the steps since the last time, this one
  // included. With update_interval "auto" so does a step for which ZenFlowBalance says so.
  bool updates_rest = false;
};

// Steps between selections; 0: there is one. Epochs of unknown length are never over.
std::int64_t SelectInterval(const config::ZenFlowConfig& config);

// The updates are counted from 1.
ZenFlowStep PlanZenFlowStep(const config::ZenFlowConfig& config, std::int64_t update);

// Columns of the largest sums, ascending: max(1, ratio of them). Of equal sums the first ones.
std::vector<std::int64_t> ChooseColumns(const std::vector<float>& sums, double ratio);

// Sums of |gradient| of one matrix in a step.
struct ZenFlowSums {
  double important = 0.0;
  double rest = 0.0;
};

// update_interval "auto": the rest is updated once what has come for it, by column, is as much as
// an average step's for the important columns, in auto_ratio of all matrices.
class ZenFlowBalance {
 public:
  // Adds a step, with the sums of every matrix, and tells whether the rest is due in it.
  bool Add(const std::vector<ZenFlowSums>& matrices, const config::ZenFlowConfig& config);
  // The rest has been updated.
  void Clear();

  std::int64_t steps() const { return steps_; }
  const std::vector<ZenFlowSums>& sums() const { return sums_; }
  void Load(std::int64_t steps, std::vector<ZenFlowSums> sums);

 private:
  std::int64_t steps_ = 0;
  std::vector<ZenFlowSums> sums_;  // over the steps
};

// Counts the values of the important columns of a rank's `elements`, at most.
std::int64_t CountImportant(const config::ZenFlowConfig& config, std::int64_t elements);

}  // namespace ds::zero
