#pragma once

// TrainData: what a training job reads, token files as they are, texts as the tokens of the job's
// tokenizer (data::FindOrCutTokens), or, without one, as bytes.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/train_job.h"
#include "runtime/data/loader.h"
#include "runtime/data/prefetching_loader.h"
#include "runtime/models/block.h"
#include "runtime/plan/data/job_data.h"
#include "runtime/rank/rank_reporter.h"
#include "runtime/rank/sample_log.h"

namespace ds::rank {

struct TrainData {
  std::unique_ptr<data::PrefetchingLoader> training;
  // Places of the training's stream, of which a step has train_batch_size: samples, or batches by
  // tokens.
  std::int64_t places_per_epoch = 0;
  std::optional<data::Blend> blend;          // of the job's paths, if it has weights
  std::vector<std::int64_t> source_samples;  // that each of these has
  SampleLog log;                             // of the training
  std::unique_ptr<data::Loader> evaluation;  // one pass of it; null where nothing is evaluated
};

// `options` are the training's, but for what the job says of evaluation. Cutting texts is reported
// as a phase; what was passed over, and how many samples a curriculum has, is a notice of the rank
// that tells.
StatusOr<TrainData> OpenTrainData(const config::TrainJob& job, data::LoaderOptions options,
                                  bool tells, RankReporter* reporter);

// OK where the state of a loader that has just been made is the same on all ranks; else an error
// that names a rank and in what its data is not rank 0's, the same on all ranks. Collective.
Status CheckSameData(const nlohmann::json& state, comm::Communicator& world);

using data::CountSteps;

// Refuses a schedule of the config that has no rate for so many steps, and says how many of them
// are an epoch where the config asks.
Status FitToData(std::int64_t steps, std::int64_t places_per_epoch, config::DsConfig* config);

// "700 samples of a.jsonl (1.40 epochs), 300 of b.bin (0.30)": what a run over so many samples of
// the job's blend takes of each path. Requires a blend.
std::string DescribeBlend(const config::TrainJob& job, const TrainData& data, std::int64_t samples);

// The micro-batch as the model takes it, on the device. `masks_padding`: for a model whose loss
// goes by all tokens, as the balance of experts does.
Bundle ToBundle(const data::Batch& batch, c10::Device device, bool masks_padding);

}  // namespace ds::rank
