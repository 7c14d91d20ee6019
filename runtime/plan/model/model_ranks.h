#pragma once

// These functions check how tensor, sequence and expert ranks can split a decoder and its samples.
// Pure. Thread-safe.

#include "runtime/base/status.h"
#include "runtime/plan/model/tensor_plan.h"
#include "runtime/plan/sequence/head_shares.h"
#include "runtime/plan/sequence/token_ranges.h"

namespace ds::models {

using sequence_parallel::ParseSequenceKind;
using sequence_parallel::SequenceKind;

// Assigns the heads of the plan's slice to `sequence` ranks. A ring gives every rank all heads.
StatusOr<sequence_parallel::HeadShares> ShareHeads(const TensorPlan& plan, int sequence,
                                                   SequenceKind kind = SequenceKind::kUlysses);

// Fails unless each of `tensor` ranks can have a slice of the decoder, `sequence` ranks of this
// kind can share the heads of every slice, and `expert` ranks can share the experts of a layer.
Status CheckModelRanks(const DecoderSpec& spec, int tensor, int sequence, int expert = 1,
                       SequenceKind kind = SequenceKind::kUlysses);

// Fails unless `sequence` divides `seq_len` and `sp_chunk`, the tokens of an FPDT chunk (0: no
// chunks). Chunks with several sequence ranks need SequenceKind::kUlysses.
Status CheckSampleParts(std::int64_t seq_len, int sequence,
                        SequenceKind kind = SequenceKind::kUlysses, std::int64_t sp_chunk = 0);

}  // namespace ds::models
