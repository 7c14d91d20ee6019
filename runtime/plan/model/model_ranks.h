#pragma once

// This says what a decoder allows of the ranks that have one model and the same samples between
// them. Pure; safe from any thread.

#include "runtime/base/status.h"
#include "runtime/plan/model/tensor_plan.h"
#include "runtime/plan/sequence/head_shares.h"
#include "runtime/plan/sequence/token_ranges.h"

namespace ds::models {

using sequence_parallel::ParseSequenceKind;
using sequence_parallel::SequenceKind;

// Decides which heads of the plan's slice each of so many sequence ranks has; of a ring, all.
StatusOr<sequence_parallel::HeadShares> ShareHeads(const TensorPlan& plan, int sequence,
                                                   SequenceKind kind = SequenceKind::kUlysses);

// OK when each of `tensor` ranks can have a slice of the decoder, `sequence` ranks of this kind can
// share the heads of every slice, and `expert` ranks the experts of a layer.
Status CheckModelRanks(const DecoderSpec& spec, int tensor, int sequence, int expert = 1,
                       SequenceKind kind = SequenceKind::kUlysses);

// OK when as many ranks can have equal parts of samples of `seq_len` tokens, and, of this kind, of
// portions of so many tokens (0: there are none).
Status CheckSampleParts(std::int64_t seq_len, int sequence,
                        SequenceKind kind = SequenceKind::kUlysses, std::int64_t portion = 0);

}  // namespace ds::models
