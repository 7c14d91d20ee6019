#include "runtime/rank/train_data.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/agreement.h"
#include "runtime/data/sample_difficulty.h"
#include "runtime/models/layers/lm_loss.h"
#include "runtime/plan/data/token_source.h"
#include "runtime/plan/schedule/lr_schedule.h"
#include "runtime/tokenizer/corpus/data_files.h"

namespace ds::rank {
namespace {

namespace fs = std::filesystem;

StatusOr<data::CachedTokens> TokenizeTexts(const config::TrainJob& job,
                                           const std::vector<tokenizer::DataFile>& files,
                                           RankReporter* reporter) {
  const data::TokenRequest request = data::MakeTokenRequest(job, files);
  fs::path root = job.data_cache;
  if (root.empty()) {
    DS_ASSIGN_OR_RETURN(root, data::DefaultCacheRoot());
  }
  int shown = -1;
  return data::FindOrTokenize(request, root, [&](double share) {
    const int percent = static_cast<int>(100 * share);
    if (percent == std::exchange(shown, percent)) return;
    reporter->ReportPhase("tokenizing the texts, " + std::to_string(percent) + " %");
  });
}

void ReportOmittedTexts(const data::OmittedTexts& cached, RankReporter* reporter) {
  if (cached.skipped > 0) {
    reporter->ReportNotice("skipped " + std::to_string(cached.skipped) +
                           " of the data's texts, the first: " + cached.first_skipped);
  }
  if (cached.rejected > 0) {
    reporter->ReportNotice("left out " + std::to_string(cached.rejected) +
                           " rows of the data with a \"label\" of false: they show bad answers");
  }
  if (cached.truncated_empty > 0) {
    reporter->ReportNotice("left out " + std::to_string(cached.truncated_empty) +
                           " rows of the data that have no trained token within --max_length");
  }
  if (cached.without_loss > 0) {
    reporter->ReportNotice("no token contributes to the loss in " +
                           std::to_string(cached.without_loss) +
                           " rows of the data, the first: " + cached.first_without_loss);
  }
}

StatusOr<data::TokenSource> OpenTokenSource(const config::TrainJob& job,
                                            const tokenizer::DataFiles& data, bool reports,
                                            RankReporter* reporter) {
  DS_ASSIGN_OR_RETURN(const data::TokenWidth width, data::ParseTokenDtype(job.token_dtype));
  if (!data::IsTokenized(job, data.files)) {  // rejects a mixture of both
    if (data::FindDocumentOptions(job) == tokenizer::DocumentOptions{}) {
      return data::TokenSource::Open(data::ListPaths(data.files), width, job.data_field);
    }
    return InvalidArgumentError(
        "--max_length and the flags that name keys of rows (--text_field ...) need tokenized "
        "texts; bytes and .bin files are used as they are: leave the flags out");
  }
  DS_ASSIGN_OR_RETURN(const data::CachedTokens cached, TokenizeTexts(job, data.files, reporter));
  if (reports) ReportOmittedTexts(cached.left_out, reporter);
  return data::TokenSource::Open(cached);
}

// Returns one source for each path of a blend, else one source for all paths.
StatusOr<std::vector<data::TokenSource>> OpenSources(const config::TrainJob& job, bool reports,
                                                     RankReporter* reporter) {
  std::vector<data::TokenSource> sources;
  for (const std::vector<std::string>& paths : data::ListSources(job)) {
    DS_ASSIGN_OR_RETURN(const auto files, tokenizer::ListDataFiles(paths));
    DS_ASSIGN_OR_RETURN(auto source, OpenTokenSource(job, files, reports, reporter));
    sources.push_back(std::move(source));
  }
  return sources;
}

StatusOr<std::unique_ptr<data::Loader>> OpenEvaluation(const config::TrainJob& job,
                                                       data::LoaderOptions options, bool reports,
                                                       RankReporter* reporter) {
  options.order.shuffle = false;
  options.weights.clear();  // every sample counts once
  options.metrics.clear();
  options.batching.reset();
  options.once = true;
  if (!job.eval_data.empty()) {
    DS_ASSIGN_OR_RETURN(const auto files,
                        tokenizer::ListDataFiles(job.eval_data, tokenizer::DataUse::kEvaluation));
    DS_ASSIGN_OR_RETURN(auto source, OpenTokenSource(job, files, reports, reporter));
    return data::Loader::Create(std::move(source), options);
  }
  options.takes_held_out = true;
  // The skipped data of these sources has been reported already.
  DS_ASSIGN_OR_RETURN(auto sources, OpenSources(job, /*reports=*/false, reporter));
  return data::Loader::Create(std::move(sources), options);
}

std::string DescribeCurriculum(const data::CurriculumOrder::Growth& growth, std::int64_t samples) {
  const std::string all = std::to_string(samples);
  if (growth.first == samples)
    return "the curriculum leaves no sample out: all " + all + " in the first step";
  std::string text = "the curriculum: " + std::to_string(growth.first) + " of " + all +
                     " samples in the first step";
  if (growth.last > growth.first) {
    text += ", " + (growth.last == samples ? "all" : std::to_string(growth.last)) + " from step " +
            std::to_string(growth.last_step) + " on";
  }
  if (growth.last == samples) return text;
  return text + "; the other " + std::to_string(samples - growth.last) + " never";
}

std::string DescribeBatches(const data::TokenBatches& batches,
                            const config::DynamicBatching& batching) {
  const auto coverage = batches.coverage();
  std::string text = "dynamic batching: " + std::to_string(coverage.samples) + " samples in " +
                     std::to_string(batches.size()) + " micro-batches of at most " +
                     std::to_string(batching.max_tokens) + " tokens, " +
                     std::to_string(batches.size() / batches.per_step()) + " steps of " +
                     std::to_string(coverage.fewest) + " to " + std::to_string(coverage.most) +
                     " samples";
  if (coverage.too_long > 0) {
    text +=
        "; " + std::to_string(coverage.too_long) + " samples are longer than that, and left out";
  }
  if (coverage.left_over > 0) {
    text +=
        "; " + std::to_string(coverage.left_over) + " at the end, which make no step, are left out";
  }
  if (batching.metrics_path.empty() || data::HasLengthFiles(batching)) return text;
  return text + "; metrics_path " + batching.metrics_path +
         " has no seqlen/seqlen_sample_to_metric.idx, so that lengths are the samples' own";
}

}  // namespace

StatusOr<SampleLog> SampleLog::Open(int rank, bool is_blend) {
  SampleLog log;
  const char* const folder = std::getenv("DSRUN_SAMPLE_LOG");
  if (folder == nullptr || *folder == '\0') return log;
  const std::string name = "rank-" + std::to_string(rank) + ".jsonl";
  auto file = AppendFile::Open(fs::path(folder) / name);
  if (!file.ok()) return file.status().WithContext("DSRUN_SAMPLE_LOG");
  log.file_ = *std::move(file);
  log.is_blend_ = is_blend;
  return log;
}

Status SampleLog::Write(std::int64_t step, const data::TokenBatch& batch) {
  if (!file_) return OkStatus();
  nlohmann::json samples = nlohmann::json::array();
  for (const auto& [source, sample] : batch.samples) {
    samples.push_back(is_blend_ ? nlohmann::json({source, sample}) : nlohmann::json(sample));
  }
  const nlohmann::json line = {{"step", step}, {"place", batch.position}, {"samples", samples}};
  return file_->Append(line.dump() + "\n").WithContext("DSRUN_SAMPLE_LOG");
}

StatusOr<TrainData> OpenTrainData(const config::TrainJob& job, data::LoaderOptions options,
                                  bool reports, RankReporter* reporter) {
  TrainData data;
  options.held_out = job.eval_split;
  options.weights = job.data_weights;
  DS_ASSIGN_OR_RETURN(options.packing, data::ParsePacking(job.packing));
  options.cache = job.data_cache;
  // Without a cache folder each rank computes the cached values.
  const auto root = data::DefaultCacheRoot();
  if (options.cache.empty() && root.ok()) options.cache = *root;
  DS_ASSIGN_OR_RETURN(auto sources, OpenSources(job, reports, reporter));
  DS_ASSIGN_OR_RETURN(auto loader, data::Loader::Create(std::move(sources), options));
  data.positions_per_epoch = loader->positions_per_epoch();
  data.source_samples = loader->CountSamples();
  if (!job.data_weights.empty()) data.blend = loader->blend();
  if (reports && loader->curriculum()) {
    reporter->ReportNotice(
        DescribeCurriculum(loader->curriculum()->growth(), loader->samples_per_epoch()));
  }
  if (reports && loader->batches()) {
    reporter->ReportNotice(DescribeBatches(*loader->batches(), *options.batching));
  }
  data.training = std::make_unique<data::PrefetchingLoader>(std::move(loader), /*depth=*/2);
  if (!job.evaluates()) return data;
  auto evaluation = OpenEvaluation(job, options, reports, reporter);
  if (!evaluation.ok()) return evaluation.status().WithContext("the data to evaluate on");
  data.evaluation = *std::move(evaluation);
  return data;
}

Status CheckSameData(const nlohmann::json& state, comm::Communicator& world) {
  const auto first = nlohmann::json::parse(comm::BroadcastText(state.dump(), /*root=*/0, world));
  Status status;
  for (const auto& [key, value] : state.items()) {
    const nlohmann::json expected = first.value(key, nlohmann::json());
    if (!status.ok() || expected == value) continue;
    status = FailedPreconditionError("its data differs from rank 0: " + key + " is " +
                                     value.dump() + " here and " + expected.dump() +
                                     " there; all hosts need the same files");
  }
  return comm::AgreeOnStatus(status, world);
}

Status FitToData(std::int64_t steps, std::int64_t positions_per_epoch, config::DsConfig* config) {
  if (auto& zenflow = config->zero_optimization.zenflow; zenflow && !zenflow->steps_per_epoch) {
    zenflow->steps_per_epoch =
        std::max<std::int64_t>(1, positions_per_epoch / config->batch.train_batch_size);
  }
  return optim::CheckScheduleCovers(*config, steps);
}

std::string DescribeBlend(const config::TrainJob& job, const TrainData& data,
                          std::int64_t samples) {
  const std::vector<std::int64_t> taken = data.blend->Count(samples);
  std::string text;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const double epochs =
        static_cast<double>(taken[i]) / static_cast<double>(data.source_samples[i]);
    std::array<char, 32> shown{};
    std::snprintf(shown.data(), shown.size(), "%.2f", epochs);
    text += (i == 0 ? "" : ", ") + std::to_string(taken[i]) + (i == 0 ? " samples of " : " of ") +
            job.data[i] + " (" + shown.data() + (i == 0 ? " epochs)" : ")");
  }
  return text;
}

namespace {

// Returns true for tokens and false for padding; undefined if there is no padding.
at::Tensor MarkTokens(const data::TokenBatch& batch) {
  const std::int64_t length = batch.inputs.size(1);
  const at::Tensor ends = at::tensor(batch.lengths).unsqueeze(1);
  if (ends.ge(length).all().item<bool>()) return {};
  return at::arange(length).unsqueeze(0).lt(ends);
}

}  // namespace

Bundle ToBundle(const data::TokenBatch& batch, c10::Device device, bool routes_tokens) {
  const auto to_device = [&](const at::Tensor& tensor) {
    return tensor.to(device, /*non_blocking=*/true);
  };
  Bundle bundle{
      .batch = {{"tokens", to_device(batch.inputs)}, {"labels", to_device(batch.labels)}}};
  // Counted on the host: counting on a device would block.
  bundle.measured_labels = {bundle.tensor("labels"), models::MeasureLabels(batch.labels)};
  bundle.longest_document = batch.longest;
  bundle.longest_sample = *std::max_element(batch.lengths.begin(), batch.lengths.end());
  if (batch.documents.defined()) {
    const at::Tensor documents = to_device(batch.documents);
    bundle.batch["documents"] = documents;
    bundle.documents = std::make_shared<kernels::SampleDocuments>(documents, batch.documents);
  }
  const at::Tensor valid = routes_tokens ? MarkTokens(batch) : at::Tensor();
  if (valid.defined()) bundle.batch["valid"] = to_device(valid);
  return bundle;
}

}  // namespace ds::rank
