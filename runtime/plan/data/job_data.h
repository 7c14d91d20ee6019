#pragma once

// These functions say what a job asks for of its data, in the terms of this folder. Files are those
// that tokenizer::ListDataFiles has found. Pure; safe from any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/train_job.h"
#include "runtime/plan/data/cut_texts.h"
#include "runtime/tokenizer/corpus/data_kind.h"

namespace ds::data {

// The paths of each source of samples: one for each path of a blend, else one of all.
std::vector<std::vector<std::string>> ListSources(const config::TrainJob& job);

// True for texts that the job's tokenizer cuts; false for bytes and files of tokens.
bool IsCut(const config::TrainJob& job, const std::vector<tokenizer::DataFile>& files);

std::vector<std::string> ListPaths(const std::vector<tokenizer::DataFile>& files);

tokenizer::DocumentOptions FindDocumentOptions(const config::TrainJob& job);

TokenRequest MakeTokenRequest(const config::TrainJob& job,
                              const std::vector<tokenizer::DataFile>& files);

// Counts the steps of the job, of so many samples each: those that it names, or as many as its
// epochs need, of so many places of the stream.
StatusOr<std::int64_t> CountSteps(const config::TrainJob& job, std::int64_t places_per_epoch,
                                  std::int64_t batch);

}  // namespace ds::data
