#pragma once

// TrainData: what a training job reads, token files as they are, texts as the tokens of the job's
// tokenizer (data::FindOrCutTokens), or, without one, as bytes.

#include <cstdint>
#include <memory>

#include "runtime/config/train_job.h"
#include "runtime/data/loader.h"
#include "runtime/models/block.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

struct TrainData {
  std::unique_ptr<data::BatchStream> training;  // read ahead
  std::int64_t samples_per_epoch = 0;           // of the training
  std::unique_ptr<data::Loader> evaluation;     // one pass of it; null where nothing is evaluated
};

// `options` are the training's, but for what the job says of evaluation. Cutting texts is reported
// as a phase; what was passed over is a notice of the rank that tells.
StatusOr<TrainData> OpenTrainData(const config::TrainJob& job, data::LoaderOptions options,
                                  bool tells, RankReporter* reporter);

// The steps of the job, of so many samples each: those that it names, or as many as its epochs
// need.
StatusOr<std::int64_t> CountSteps(const config::TrainJob& job, std::int64_t samples_per_epoch,
                                  std::int64_t batch);

// The micro-batch as the model takes it, on the device.
Bundle ToBundle(const data::Batch& batch, c10::Device device);

}  // namespace ds::rank
