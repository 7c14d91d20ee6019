#pragma once

// Checks of a job's data paths before ranks start. The paths must exist and their files must have a
// supported kind. The ranks call the same tokenizer::ListDataFiles.

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/train_job.h"
#include "runtime/tokenizer/corpus/data_kind.h"

namespace ds::cli {

// Returns the paths in the form that ranks receive: absolute, patterns unexpanded. Errors begin
// with the flag, --data or --eval_data. Adds a notice for each folder with skipped files.
StatusOr<std::vector<std::string>> CheckData(const std::vector<std::string>& data,
                                             tokenizer::DataUse use,
                                             std::vector<std::string>* notices);

// Rejects flags and files that do not fit the kinds of the job's files: --data_field without a
// .json file, text files mixed with .bin files, and flags for rows and documents if no text is
// tokenized. The paths must have passed CheckData.
Status CheckFilesFit(const config::TrainJob& job);

}  // namespace ds::cli
