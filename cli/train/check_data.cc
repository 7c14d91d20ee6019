#include "cli/train/check_data.h"

#include <algorithm>
#include <filesystem>

#include "cli/train/row_flags.h"
#include "runtime/tokenizer/corpus/data_files.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

// Megatron-LM names a data set by the common part of its .bin and .idx files.
std::string FindTokenFile(const std::string& path) {
  std::error_code error;
  const bool has_both = fs::exists(path + ".bin", error) && fs::exists(path + ".idx", error);
  return !fs::exists(path, error) && has_both ? path + ".bin" : path;
}

bool IsTokens(const tokenizer::DataFile& file) { return file.kind == tokenizer::DataKind::kTokens; }

bool HasJson(const std::vector<tokenizer::DataFile>& files) {
  return std::any_of(files.begin(), files.end(), [](const tokenizer::DataFile& file) {
    return file.kind == tokenizer::DataKind::kJson;
  });
}

// Megatron-LM's index contains the ends of documents.
bool HasIndex(const tokenizer::DataFile& file) {
  std::error_code error;
  return IsTokens(file) && fs::exists(fs::path(file.path).replace_extension(".idx"), error);
}

// Rejects settings that the ranks would reject for files that are one row of tokens.
Status CheckPart(const config::TrainJob& job, const std::vector<tokenizer::DataFile>& files) {
  const auto tokens = std::find_if(files.begin(), files.end(), IsTokens);
  const auto text = std::find_if_not(files.begin(), files.end(), IsTokens);
  if (tokens != files.end() && text != files.end()) {
    return InvalidArgumentError(
        "texts and .bin token files cannot be mixed: " + text->path.string() + " and " +
        tokens->path.string() + "; dsrun tokenize converts texts to such a file");
  }
  if (files.empty() || (tokens == files.end() && !job.tokenizer.empty())) return OkStatus();
  const std::string uncut = tokens != files.end() ? tokens->path.string() + " has tokens already"
                                                  : "without a tokenizer (--tokenizer DIR) " +
                                                        text->path.string() + " is read as bytes";
  if (const std::string flag = FindRowFlag(job); !flag.empty()) {
    return InvalidArgumentError(flag + " needs tokenized texts, but " + uncut +
                                ": leave the flag out");
  }
  if (job.packing == "stream" || std::all_of(files.begin(), files.end(), HasIndex)) {
    return OkStatus();
  }
  return InvalidArgumentError("packing by documents (--packing) needs tokenized texts, but " +
                              uncut + ", so the ends of documents are unknown");
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

Status CheckFilesFit(const config::TrainJob& job) {
  std::vector<std::vector<std::string>> parts{job.data};
  if (!job.data_weights.empty()) {
    parts.clear();
    for (const std::string& path : job.data) parts.push_back({path});
  }
  bool has_json = false;
  for (const std::vector<std::string>& paths : parts) {
    DS_ASSIGN_OR_RETURN(const tokenizer::DataFiles data, tokenizer::ListDataFiles(paths));
    DS_RETURN_IF_ERROR(CheckPart(job, data.files).WithContext("--data"));
    has_json = has_json || HasJson(data.files);
  }
  DS_ASSIGN_OR_RETURN(const tokenizer::DataFiles other,
                      tokenizer::ListDataFiles(job.eval_data, tokenizer::DataUse::kEvaluation));
  DS_RETURN_IF_ERROR(CheckPart(job, other.files).WithContext("--eval_data"));
  if (job.data_field.empty() || has_json || HasJson(other.files)) return OkStatus();
  return InvalidArgumentError("--data_field " + job.data_field +
                              " has no effect: no file of the data is .json");
}

}  // namespace ds::cli
