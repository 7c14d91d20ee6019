#include "cli/train/check_data.h"

#include <algorithm>
#include <filesystem>

#include "runtime/tokenizer/corpus/data_files.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

// Megatron-LM names its files by the part that .bin and .idx have in common.
std::string FindTokenFile(const std::string& path) {
  std::error_code error;
  const bool has_both = fs::exists(path + ".bin", error) && fs::exists(path + ".idx", error);
  return !fs::exists(path, error) && has_both ? path + ".bin" : path;
}

}  // namespace

StatusOr<std::vector<std::string>> CheckData(const std::vector<std::string>& data,
                                             tokenizer::DataUse use,
                                             std::vector<std::string>* notices) {
  const std::string flag = use == tokenizer::DataUse::kTraining ? "--data" : "--eval_data";
  std::vector<std::string> checked;
  for (const std::string& path : data) {
    const std::string found = FindTokenFile(path);
    auto files = tokenizer::ListDataFiles({found}, use);
    if (!files.ok()) return InvalidArgumentError(flag + " " + files.status().message());
    notices->insert(notices->end(), files->notices.begin(), files->notices.end());
    checked.push_back(fs::absolute(found).lexically_normal().string());
  }
  return checked;
}

Status CheckDataField(const config::TrainJob& job) {
  if (job.data_field.empty()) return OkStatus();
  DS_ASSIGN_OR_RETURN(tokenizer::DataFiles data, tokenizer::ListDataFiles(job.data));
  DS_ASSIGN_OR_RETURN(const tokenizer::DataFiles other,
                      tokenizer::ListDataFiles(job.eval_data, tokenizer::DataUse::kEvaluation));
  data.files.insert(data.files.end(), other.files.begin(), other.files.end());
  const auto is_json = [](const tokenizer::DataFile& file) {
    return file.kind == tokenizer::DataKind::kJson;
  };
  if (std::any_of(data.files.begin(), data.files.end(), is_json)) return OkStatus();
  return InvalidArgumentError("--data_field " + job.data_field +
                              ": of what? No file of the data is .json");
}

}  // namespace ds::cli
