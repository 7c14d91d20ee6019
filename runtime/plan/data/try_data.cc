#include "runtime/plan/data/try_data.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/data/document_index.h"
#include "runtime/plan/data/job_data.h"
#include "runtime/plan/data/sample_plan.h"
#include "runtime/plan/data/text_tokenizer.h"
#include "runtime/plan/data/token_source.h"
#include "runtime/tokenizer/corpus/data_files.h"
#include "runtime/tokenizer/corpus/documents.h"

namespace ds::data {
namespace {

using tokenizer::DataFile;
using tokenizer::DataKind;

using Samples = std::optional<std::int64_t>;

// Receives a text or a row; errors refer to it as `location`.
using UseOfText =
    std::function<Status(std::string_view text, bool is_row, const std::string& location)>;

// A compressed file counts as large: its size does not bound its content's size.
std::int64_t SizeOf(const DataFile& file) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 50;
  std::array<char, 2> begin{};
  std::ifstream(file.path, std::ios::binary).read(begin.data(), begin.size());
  if (begin == std::array{'\x1f', '\x8b'}) return kLarge;
  std::error_code error;
  const auto size = std::filesystem::file_size(file.path, error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

Status RefuseId(const std::string& location, std::uint32_t id, std::int64_t vocabulary) {
  return OutOfRangeError(location + ": the tokenizer gives token id " + std::to_string(id) +
                         ", which is outside the model's vocabulary of " +
                         std::to_string(vocabulary) +
                         " tokens; --tokenizer DIR names the model's own");
}

class DataTrial {
 public:
  DataTrial(const config::TrainJob& job, std::int64_t vocabulary, const TryBounds& bounds)
      : job_(job), vocabulary_(vocabulary), bounds_(bounds) {}

  // Returns the number of training samples, if they can be counted.
  StatusOr<Samples> Try(const std::vector<DataFile>& files, double held_out) {
    DS_ASSIGN_OR_RETURN(packing_, ParsePacking(job_.packing));
    held_out_ = held_out;
    if (IsTokenized(job_, files)) return TryTexts(files);
    return IsRead(files) ? TryTokens(files) : TryRowsOfBytes(files);
  }

 private:
  StatusOr<Samples> TryTexts(const std::vector<DataFile>& files);
  StatusOr<Samples> TryTokens(const std::vector<DataFile>& files) const;
  StatusOr<Samples> TryRowsOfBytes(const std::vector<DataFile>& files);
  StatusOr<Samples> CountSamples(const StatusOr<SamplePlan>& plan, std::int64_t tokens) const;
  // True for files that TokenSource does not read in full, and for small ones.
  bool IsRead(const std::vector<DataFile>& files) const;
  // Calls `use` with the part of the files within the bounds. Returns whether that is all of it.
  StatusOr<bool> ReadStart(const std::vector<DataFile>& files, const UseOfText& use);
  StatusOr<bool> ReadFileStart(const DataFile& file, const UseOfText& use);

  const config::TrainJob& job_;
  const std::int64_t vocabulary_;
  const TryBounds bounds_;
  Packing packing_ = Packing::kStream;
  double held_out_ = 0.0;
  std::int64_t read_bytes_ = 0;
};

StatusOr<bool> DataTrial::ReadFileStart(const DataFile& file, const UseOfText& use) {
  if (file.kind == DataKind::kText && SizeOf(file) > bounds_.file_bytes) return false;
  DS_ASSIGN_OR_RETURN(auto reader,
                      tokenizer::DocumentReader::Open({file.path.string()}, job_.data_field));
  std::int64_t rows = 0, bytes = 0;
  while (rows <= bounds_.file_rows && bytes <= bounds_.file_bytes) {
    DS_ASSIGN_OR_RETURN(const auto batch, reader.Next());
    if (!batch) return true;
    bytes += static_cast<std::int64_t>(batch->bytes.size());
    read_bytes_ += static_cast<std::int64_t>(batch->bytes.size());
    DS_RETURN_IF_ERROR(
        tokenizer::ForEachDocument(*batch, [&](std::string_view text, const std::string& location) {
          return ++rows > bounds_.file_rows ? OkStatus() : use(text, batch->lines, location);
        }));
  }
  return false;
}

StatusOr<bool> DataTrial::ReadStart(const std::vector<DataFile>& files, const UseOfText& use) {
  bool is_all = true;
  for (const DataFile& file : files) {
    if (read_bytes_ > bounds_.all_bytes) return false;
    DS_ASSIGN_OR_RETURN(const bool is_complete, ReadFileStart(file, use));
    is_all = is_all && is_complete;
  }
  return is_all;
}

StatusOr<Samples> DataTrial::TryTexts(const std::vector<DataFile>& files) {
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<TextTokenizer> cutter,
                      TextTokenizer::Open(MakeTokenRequest(job_, files)));
  std::vector<std::uint64_t> ends;
  std::int64_t tokens = 0;
  const TextTokenizer::Keep keep = [&](const tokenizer::EncodedDocument& document,
                                       const std::string& location) -> Status {
    for (const std::uint32_t id : document.ids) {
      if (id >= vocabulary_) return RefuseId(location, id, vocabulary_);
    }
    tokens += std::ssize(document.ids);
    if (!document.ids.empty()) ends.push_back(static_cast<std::uint64_t>(tokens));
    return OkStatus();
  };
  DS_ASSIGN_OR_RETURN(const bool is_all, ReadStart(files, [&](std::string_view text, bool is_row,
                                                              const std::string& location) {
                        return cutter->Tokenize(text, is_row, location, keep);
                      }));
  if (!is_all) return Samples();  // counting samples needs all the data
  DS_RETURN_IF_ERROR(cutter->CheckHasLoss());
  if (packing_ == Packing::kStream) {
    return CountSamples(SamplePlan::Stream(tokens, job_.seq_len), tokens);
  }
  const auto read = [&](std::int64_t first,
                        std::int64_t count) -> StatusOr<std::vector<std::uint64_t>> {
    return std::vector<std::uint64_t>(ends.begin() + first, ends.begin() + first + count);
  };
  DS_ASSIGN_OR_RETURN(const auto documents,
                      DocumentIndex::Create("the texts", std::ssize(ends), read));
  return CountSamples(
      SamplePlan::WholeDocuments(documents, job_.seq_len, /*one_each=*/packing_ == Packing::kNone),
      tokens);
}

bool DataTrial::IsRead(const std::vector<DataFile>& files) const {
  std::int64_t bytes = 0;
  for (const DataFile& file : files) {
    const bool is_held = file.path.extension() == ".gz" ||
                         (file.kind != DataKind::kTokens && file.kind != DataKind::kText);
    if (is_held) bytes += SizeOf(file);
  }
  return bytes <= bounds_.file_bytes;
}

StatusOr<Samples> DataTrial::TryTokens(const std::vector<DataFile>& files) const {
  DS_ASSIGN_OR_RETURN(const TokenWidth width, ParseTokenDtype(job_.token_dtype));
  DS_ASSIGN_OR_RETURN(const TokenSource source,
                      TokenSource::Open(ListPaths(files), width, job_.data_field));
  DS_ASSIGN_OR_RETURN(const Samples samples,
                      CountSamples(PlanSamples(source, packing_, job_.seq_len), source.size()));
  const std::int64_t share = bounds_.all_tokens / std::max<std::int64_t>(1, std::ssize(files));
  DS_RETURN_IF_ERROR(source.CheckStarts(share, vocabulary_));
  return samples;
}

StatusOr<Samples> DataTrial::TryRowsOfBytes(const std::vector<DataFile>& files) {
  const auto use = [](std::string_view text, bool is_row, const std::string& location) {
    return is_row ? ReadRowText(text, location).status() : OkStatus();
  };
  DS_RETURN_IF_ERROR(ReadStart(files, use).status());
  return Samples();
}

StatusOr<Samples> DataTrial::CountSamples(const StatusOr<SamplePlan>& plan,
                                          std::int64_t tokens) const {
  DS_RETURN_IF_ERROR(plan.status());
  DS_RETURN_IF_ERROR(CheckHasSamples(*plan, tokens, job_.seq_len));
  DS_ASSIGN_OR_RETURN(const ChosenSamples part,
                      ChooseSamples(*plan, held_out_, /*takes_held_out=*/false));
  return Samples(part.count);
}

}  // namespace

StatusOr<std::optional<std::int64_t>> TryData(const config::TrainJob& job, std::int64_t vocabulary,
                                              const TryBounds& bounds) {
  DataTrial trial(job, vocabulary, bounds);
  Samples all = 0;
  for (const std::vector<std::string>& paths : ListSources(job)) {
    DS_ASSIGN_OR_RETURN(const auto data, tokenizer::ListDataFiles(paths));
    DS_ASSIGN_OR_RETURN(const Samples samples, trial.Try(data.files, job.eval_split));
    all = all && samples ? Samples(*all + *samples) : std::nullopt;
  }
  if (job.eval_data.empty()) return all;
  DS_ASSIGN_OR_RETURN(const auto data,
                      tokenizer::ListDataFiles(job.eval_data, tokenizer::DataUse::kEvaluation));
  const Status status =
      DataTrial(job, vocabulary, bounds).Try(data.files, /*held_out=*/0.0).status();
  if (!status.ok()) return status.WithContext("the data to evaluate on");
  return all;
}

}  // namespace ds::data
