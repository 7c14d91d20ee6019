#pragma once

// Portions: the attention part of a layer takes some of a sample's tokens at a time, so that no
// more than one portion's queries, keys and values are there while the keys and values of the
// portions before it wait elsewhere and are brought one ahead (FPDT: Yao et al. 2024, arXiv
// 2408.16978, its chunks). This plans which keys a portion's queries look at, in which order, and
// when keys have been looked at for the last time. Pure; safe from any thread.

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/plan/sequence/token_ranges.h"

namespace ds::sequence_parallel {

// The portions of a sample, of `portion` tokens each; the last one has what is left.
std::vector<TokenRange> CutPortions(std::int64_t tokens, std::int64_t portion);

// Tells of portion `queries` whether it looks at the keys of one before it.
using LooksAt = std::function<bool(int queries, int keys)>;

// Keys and values of an earlier portion. The next ones of the step are brought meanwhile.
struct KeyVisit {
  int keys = 0;
  bool last = false;  // no step behind this one looks at them
  friend bool operator==(const KeyVisit&, const KeyVisit&) = default;
};

// One portion's queries, over its own keys and those, in this order.
struct PortionStep {
  int queries = 0;
  std::vector<KeyVisit> earlier;
  // A step behind this one looks at this portion's keys: of the forward pass, which keeps them.
  bool keys_wait = false;
  friend bool operator==(const PortionStep&, const PortionStep&) = default;
};

// The steps of a forward pass, from the first portion to the last one.
std::vector<PortionStep> PlanForward(int portions, const LooksAt& looks_at);
// Those of a backward pass, from the last one to the first. Gradients of keys are complete when
// their own portion's step comes, for only portions behind it and that one itself have looked at
// them: a step then has all of its portion's.
std::vector<PortionStep> PlanBackward(int portions, const LooksAt& looks_at);

}  // namespace ds::sequence_parallel
