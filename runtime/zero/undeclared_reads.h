#pragma once

// UndeclaredReads: finds parameters of other units that a unit's forward reads without declaring it
// (ParameterUnit::also_reads). If parameters are sharded, these have no memory then, unless they
// stay present by chance or within a budget.
//
// While an object lives it observes every operator that LibTorch runs on this thread, which is
// slow; use it for a model's first forward pass. It does not see memory accesses that bypass
// operators.

#include <memory>
#include <string>

#include "runtime/zero/sharded_model.h"

namespace ds::zero {

class UndeclaredReads {
 public:
  // Starts observing. From here on only unit `index` of the model may run.
  UndeclaredReads(const ShardedModel& model, int index);
  ~UndeclaredReads();
  UndeclaredReads(const UndeclaredReads&) = delete;
  UndeclaredReads& operator=(const UndeclaredReads&) = delete;

  // Returns a message about the first undeclared read and how to fix it; nothing if there was none.
  std::string Describe() const;

 private:
  struct Watch;
  struct Installed;

  const ShardedModel& model_;
  const int index_;
  std::shared_ptr<Watch> watch_;
  std::unique_ptr<Installed> installed_;
};

}  // namespace ds::zero
