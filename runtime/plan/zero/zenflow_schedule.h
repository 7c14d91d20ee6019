#pragma once

// ZenFlow's schedule decides which columns of a matrix are updated in every step, when they are
// selected anew, and when everything else is updated. Pure. The rule is DeepSpeed's
// (runtime/zenflow); a step here is its micro-step.
//
// A column of a torch::nn::Linear's matrix corresponds to one of its inputs. Non-matrix parameters
// are always important.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/config/ds_config.h"

namespace ds::zero {

struct ZenFlowStep {
  bool has_important = false;  // updates the important columns: the warm-up is over
  bool selects = false;        // first selects the columns; their moments are reset to 0
  // Updates everything else by the mean gradient of the steps since the last such update, this step
  // included. With update_interval "auto", so does a step for which ZenFlowBalance::Add returns
  // true.
  bool updates_unselected = false;
};

// Returns the steps between selections; 0: select only once. Epochs of unknown length never end.
std::int64_t SelectInterval(const config::ZenFlowConfig& config);

// Plans the step with this number; updates are counted from 1.
ZenFlowStep PlanZenFlowStep(const config::ZenFlowConfig& config, std::int64_t update);

// Returns the columns with the largest sums, ascending: max(1, ratio of all columns). Ties go to
// the first ones.
std::vector<std::int64_t> ChooseColumns(const std::vector<float>& sums, double ratio);

// Sums of |gradient| of one matrix in a step.
struct ZenFlowSums {
  double important = 0.0;
  double unselected = 0.0;
};

// update_interval "auto": the rest is due once its accumulated gradient, per column, reaches an
// average step's for the important columns, in auto_ratio of all matrices.
class ZenFlowBalance {
 public:
  // Adds a step with the sums of every matrix. Returns true if the rest is due in this step.
  bool Add(const std::vector<ZenFlowSums>& matrices, const config::ZenFlowConfig& config);
  // Resets the balance. Call it after an update of the rest.
  void Clear();

  std::int64_t steps() const { return steps_; }
  const std::vector<ZenFlowSums>& sums() const { return sums_; }
  void Load(std::int64_t steps, std::vector<ZenFlowSums> sums);

 private:
  std::int64_t steps_ = 0;
  std::vector<ZenFlowSums> sums_;  // over the steps
};

// Returns the most values of important columns that a rank with `elements` elements may have.
std::int64_t CountImportant(const config::ZenFlowConfig& config, std::int64_t elements);

}  // namespace ds::zero
