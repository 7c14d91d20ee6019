#pragma once

// TrainData: the data of a training job. Token files are read directly. Texts are tokenized with
// the job's tokenizer (data::FindOrTokenize), or read as bytes if there is none.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/train_job.h"
#include "runtime/data/loader.h"
#include "runtime/data/loader_options.h"
#include "runtime/data/prefetching_loader.h"
#include "runtime/models/block.h"
#include "runtime/plan/data/job_data.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

// SampleLog: logs the samples on which a rank trains. With DSRUN_SAMPLE_LOG=FOLDER in its
// environment each rank appends a line per micro-batch to FOLDER/rank-N.jsonl,
// {"step","place","samples":[...]}: its step, its first position in the training stream
// (data/loader.h), and the numbers of its samples (of a blend [source, sample]).
//
// A line is written before the batch is used. A step that failed and is repeated by the restarted
// job therefore has lines of both attempts.
class SampleLog {
 public:
  // Opens the file; without the variable the log writes nothing. Fails if the file cannot be
  // opened.
  static StatusOr<SampleLog> Open(int rank, bool is_blend);
  Status Write(std::int64_t step, const data::TokenBatch& batch);

 private:
  std::optional<AppendFile> file_;
  bool is_blend_ = false;
};

struct TrainData {
  std::unique_ptr<data::PrefetchingLoader> training;
  // Length of an epoch in positions of the training stream: samples, or batches by tokens. A step
  // has train_batch_size positions.
  std::int64_t positions_per_epoch = 0;
  std::optional<data::Blend> blend;          // of the job's paths, if it has weights
  std::vector<std::int64_t> source_samples;  // number of samples of each path
  SampleLog log;                             // of the training
  std::unique_ptr<data::Loader> evaluation;  // one pass; null without evaluation
};

// Opens the data. `options` are the options of training; the job adds the options of evaluation.
// Tokenizing is reported as a phase. If `reports`, this rank reports notices about skipped data and
// about the number of samples of a curriculum.
StatusOr<TrainData> OpenTrainData(const config::TrainJob& job, data::LoaderOptions options,
                                  bool reports, RankReporter* reporter);

// Compares the state of a newly created loader between ranks. Returns OK if all are equal, else an
// error that names a rank and the difference from rank 0's data, the same on all ranks. Collective:
// all ranks call it.
Status CheckSameData(const nlohmann::json& state, comm::Communicator& world);

using data::CountSteps;

// Rejects a schedule of the config without a learning rate for `steps` steps. Sets the number of
// steps per epoch if the config requires it.
Status FitToData(std::int64_t steps, std::int64_t positions_per_epoch, config::DsConfig* config);

// Describes the samples that a run of `samples` samples takes of each path: "700 samples of a.jsonl
// (1.40 epochs), 300 of b.bin (0.30)". Requires a blend.
std::string DescribeBlend(const config::TrainJob& job, const TrainData& data, std::int64_t samples);

// Converts a micro-batch to the model's input on the device. With `routes_tokens`, for models with
// experts, the batch marks its padding.
Bundle ToBundle(const data::TokenBatch& batch, c10::Device device, bool routes_tokens);

}  // namespace ds::rank
