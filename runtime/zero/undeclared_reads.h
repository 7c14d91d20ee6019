#pragma once

// UndeclaredReads: finds the parameters of other units that a unit's forward reads without having
// said so (ParameterUnit::also_reads). Sharded, they have no bytes then, unless chance or a budget
// keeps them there.
//
// While it lives it sees every operator that LibTorch runs on this thread, which costs time: it is
// for a model's first forward pass. It does not see what reads a parameter's memory without one.

#include <memory>
#include <string>

#include "runtime/zero/sharded_model.h"

namespace ds::zero {

class UndeclaredReads {
 public:
  // From here on unit `index` of the model runs, and nobody else.
  UndeclaredReads(const ShardedModel& model, int index);
  ~UndeclaredReads();
  UndeclaredReads(const UndeclaredReads&) = delete;
  UndeclaredReads& operator=(const UndeclaredReads&) = delete;

  // Says of the first one which it is and what to do; nothing where there is none.
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
