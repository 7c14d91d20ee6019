#include "runtime/rank/open_data.h"

#include <algorithm>
#include <utility>

namespace ds::rank {
namespace {

namespace fs = std::filesystem;

bool IsTokenFile(const fs::path& path) { return path.extension() == ".bin"; }

StatusOr<data::CachedTokens> CutTexts(const config::TrainJob& job,
                                      const std::vector<fs::path>& files, RankReporter* reporter) {
  data::TokenRequest request{.tokenizer = job.tokenizer,
                             .text_field = job.text_field,
                             .skip_bad_data = job.on_bad_data == "skip"};
  for (const fs::path& file : files) request.files.push_back(file.string());
  fs::path root = job.data_cache;
  if (root.empty()) {
    DS_ASSIGN_OR_RETURN(root, data::DefaultCacheRoot());
  }
  int shown = -1;
  return data::FindOrCutTokens(request, root, [&](double share) {
    const int percent = static_cast<int>(100 * share);
    if (percent == std::exchange(shown, percent)) return;
    reporter->ReportPhase("cut the texts into tokens, " + std::to_string(percent) + " %");
  });
}

}  // namespace

StatusOr<data::TokenSource> OpenTokenSource(const config::TrainJob& job, bool tells,
                                            RankReporter* reporter) {
  DS_ASSIGN_OR_RETURN(const data::TokenWidth width, data::ParseTokenDtype(job.token_dtype));
  DS_ASSIGN_OR_RETURN(const std::vector<fs::path> files, data::ListDataFiles(job.data));
  const auto tokens = std::count_if(files.begin(), files.end(), IsTokenFile);
  if (job.tokenizer.empty() || tokens > 0) {  // a mixture of both is refused there
    return data::TokenSource::Open(job.data, width);
  }
  DS_ASSIGN_OR_RETURN(const data::CachedTokens cached, CutTexts(job, files, reporter));
  if (tells && cached.skipped > 0) {
    reporter->ReportNotice(
        std::to_string(cached.skipped) +
        " texts of the data are passed over, the first of them: " + cached.first_skipped);
  }
  return data::TokenSource::Open(cached);
}

}  // namespace ds::rank
