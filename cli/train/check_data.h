#pragma once

// The data paths of a job, judged before ranks start: they exist, and their files are of a kind
// that is read (tokenizer::ListDataFiles, which the ranks call, too).

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/train_job.h"
#include "runtime/tokenizer/corpus/data_kind.h"

namespace ds::cli {

// Returns the paths as the ranks get them, absolute; a pattern stays a pattern. Errors begin with
// the flag, --data or --eval_data. Adds a notice for each folder of which files are passed over.
StatusOr<std::vector<std::string>> CheckData(const std::vector<std::string>& data,
                                             tokenizer::DataUse use,
                                             std::vector<std::string>* notices);

// Refuses what the kinds of the job's files exclude: --data_field without a .json file, texts next
// to .bin files, and flags on rows and documents where no tokenizer cuts texts. Requires paths that
// CheckData has passed.
Status CheckFilesFit(const config::TrainJob& job);

}  // namespace ds::cli
