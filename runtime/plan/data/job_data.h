#pragma once

// These functions translate a job's data settings into the types of this folder. `files` are those
// found by tokenizer::ListDataFiles. Pure. Thread-safe.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/train_job.h"
#include "runtime/plan/data/text_tokenizer.h"
#include "runtime/tokenizer/corpus/data_kind.h"

namespace ds::data {

// Returns the paths of each source of samples: one source per path of a blend, else a single
// source.
std::vector<std::vector<std::string>> ListSources(const config::TrainJob& job);

// True for texts that the job's tokenizer tokenizes; false for bytes and files of tokens.
bool IsTokenized(const config::TrainJob& job, const std::vector<tokenizer::DataFile>& files);

std::vector<std::string> ListPaths(const std::vector<tokenizer::DataFile>& files);

tokenizer::DocumentOptions FindDocumentOptions(const config::TrainJob& job);

TokenRequest MakeTokenRequest(const config::TrainJob& job,
                              const std::vector<tokenizer::DataFile>& files);

// Returns the number of steps of the job, with `batch` samples each: the job's own number, or as
// many as its epochs need, with `positions_per_epoch` samples each.
StatusOr<std::int64_t> CountSteps(const config::TrainJob& job, std::int64_t positions_per_epoch,
                                  std::int64_t batch);

}  // namespace ds::data
