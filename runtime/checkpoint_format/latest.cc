#include "runtime/checkpoint_format/latest.h"

#include <fmt/format.h>

#include <system_error>

#include "runtime/base/files.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/reading.h"
#include "runtime/checkpoint_format/writers.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxLatestBytes = std::uint64_t{1} << 20;

}  // namespace

std::string SerializeLatest(const Latest& latest) {
  std::string text = StepDirectoryName(latest.step) + "\n";
  if (!latest.lineage && latest.generation == 0) return text;
  nlohmann::json json = {{"may_save", latest.generation}};
  if (latest.start != 0) json["start"] = latest.start;
  if (latest.lineage) json["lineage"] = LineageToJson(*latest.lineage);
  return text + json.dump() + "\n";
}

std::optional<Latest> ParseLatest(std::string_view text) {
  const std::size_t end = text.find('\n');
  const auto step = StepOfDirectoryName(text.substr(0, end));
  if (!step) return std::nullopt;
  Latest latest{.step = *step, .generation = 0, .lineage = std::nullopt};
  if (end == std::string_view::npos) return latest;
  const auto json = nlohmann::json::parse(text.substr(end), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return latest;
  const auto generation = json.find("may_save");
  if (generation != json.end() && generation->is_number_unsigned()) {
    latest.generation = generation->get<std::int64_t>();
  }
  const auto start = json.find("start");
  if (start != json.end() && start->is_number_unsigned()) latest.start = start->get<std::int64_t>();
  if (const auto found = json.find("lineage"); found != json.end()) {
    if (auto lineage = LineageFromJson(*found); lineage.ok()) latest.lineage = *std::move(lineage);
  }
  return latest;
}

StatusOr<std::optional<Latest>> ReadLatest(const fs::path& root, FileSystem& system) {
  const StatusOr<std::string> text = ReadText(root / kLatestFile, kMaxLatestBytes, system);
  if (text.ok()) return ParseLatest(*text);
  if (text.status().code() == StatusCode::kUnavailable) return text.status();
  return std::optional<Latest>();
}

Status WriteLatest(const fs::path& root, const Latest& latest, FileSystem& system) {
  constexpr unsigned kMode = 0644;
  std::error_code error;
  if (fs::is_directory(fs::symlink_status(root / kLatestFile, error))) {
    return DataLossError((root / kLatestFile).string() +
                         ": a folder is where dsrun keeps a file: move the folder away");
  }
  return WriteFileAtomically(root / kLatestFile, SerializeLatest(latest), kMode,
                             Durability::kDurable, system);
}

Status CheckMaySave(const fs::path& root, const std::optional<Lineage>& lineage) {
  DS_ASSIGN_OR_RETURN(const std::optional<Latest> latest, ReadLatest(root));
  if (!latest || !lineage || latest->generation <= lineage->generation) return OkStatus();
  return FailedPreconditionError(
      fmt::format("{}: generation {} of the job saves here now, and these ranks are of generation "
                  "{}; they were given up, and their steps since then are lost",
                  root.string(), latest->generation, lineage->generation));
}

Status TakeOver(const fs::path& directory, std::int64_t generation, std::int64_t start,
                FileSystem& system) {
  DS_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(directory));
  const Latest latest{
      .step = manifest.step, .generation = generation, .lineage = manifest.lineage, .start = start};
  const fs::path root = directory.parent_path();
  DS_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(root, system));
  return WriteLatest(root, latest, system);
}

}  // namespace ds::checkpoint
