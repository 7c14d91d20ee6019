#pragma once

// OpenTokenSource opens what a training job reads: token files as they are, texts as the tokens of
// the job's tokenizer (data::FindOrCutTokens), or, without one, as bytes.

#include "runtime/config/train_job.h"
#include "runtime/data/token_source.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

// Cutting texts is reported as a phase; what was passed over is a notice of the rank that tells.
StatusOr<data::TokenSource> OpenTokenSource(const config::TrainJob& job, bool tells,
                                            RankReporter* reporter);

}  // namespace ds::rank
