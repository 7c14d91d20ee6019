#include "cli/commands/checkpoint_command.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>
#include <system_error>
#include <tuple>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/printable.h"
#include "runtime/base/suggest.h"
#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/reading.h"
#include "runtime/checkpoint_format/verify.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::ListedCheckpoint;

std::string NameOf(const fs::path& directory) { return directory.filename().string(); }

// A checkpoint, with the name that is shown.
struct Found {
  ListedCheckpoint listed;
  std::string name;
};

// True for a folder of engine.save_checkpoint of the Python package, which holds one checkpoint of
// a tag.
bool IsTag(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / checkpoint::kLatestFile, ignored) &&
         !fs::exists(directory / checkpoint::kManifestFile, ignored);
}

// True if `directory` denotes one checkpoint, in any state.
bool IsOneCheckpoint(const fs::path& directory) {
  std::error_code ignored;
  return (checkpoint::StepOfDirectoryName(NameOf(directory)).has_value() && !IsTag(directory)) ||
         fs::exists(directory / checkpoint::kManifestFile, ignored);
}

// Returns the tag that root/latest names, "" without one.
std::string ReadLatestTag(const fs::path& root) {
  const auto text = ReadFile(root / checkpoint::kLatestFile);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

// Appends the checkpoints of the tags in `root`.
Status AddTags(const fs::path& root, std::vector<Found>* found) {
  std::error_code error;
  const std::string latest = ReadLatestTag(root);
  for (const auto& entry : fs::directory_iterator(root, error)) {
    if (!IsTag(entry.path())) continue;
    const std::string tag = NameOf(entry.path());
    DS_ASSIGN_OR_RETURN(const auto listed, checkpoint::ListCheckpoints(entry.path()));
    for (ListedCheckpoint each : listed) {
      each.latest = each.latest && tag == latest;
      found->push_back({each, (fs::path(tag) / NameOf(each.directory)).string()});
    }
  }
  return error ? checkpoint::ReadError(error.value(), root.string()) : OkStatus();
}

// Returns the checkpoints in a run directory, in a folder of checkpoints, or in a folder of tags.
StatusOr<std::vector<Found>> CheckpointsBelow(const fs::path& directory) {
  std::error_code ignored;
  const fs::path of_run = directory / "checkpoints";
  const fs::path root = fs::is_directory(of_run, ignored) ? of_run : directory;
  DS_ASSIGN_OR_RETURN(const auto listed, checkpoint::ListCheckpoints(root));
  std::vector<Found> found;
  for (const ListedCheckpoint& each : listed) {
    if (!IsTag(each.directory)) found.push_back({each, NameOf(each.directory)});
  }
  DS_RETURN_IF_ERROR(AddTags(root, &found));
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.listed.step, a.name) < std::tie(b.listed.step, b.name);
  });
  if (found.empty()) return NotFoundError(root.string() + ": there is no checkpoint in it");
  return found;
}

int VerifyOne(const fs::path& directory, const std::string& name, std::ostream& out) {
  const StatusOr<checkpoint::VerifyReport> report = checkpoint::VerifyCheckpoint(directory);
  if (report.status().code() == StatusCode::kUnavailable) {
    out << fmt::format("{}: unknown, it cannot be read now: {}\n", name,
                       Printable(report.status().message()));
    return kExitCheckpoint;
  }
  if (!report.ok()) {
    out << fmt::format("{}: no checkpoint: {}\n", name, Printable(report.status().message()));
    return kExitCheckpoint;
  }
  if (report->ok()) {
    out << fmt::format("{}: good: {} tensors, {}\n", name, report->tensors,
                       ByteSize(report->data_bytes));
    return kExitOk;
  }
  out << fmt::format("{}: damaged\n", name);
  for (const checkpoint::Damage& damage : report->damages) {
    out << "  " << Printable(checkpoint::Describe(damage)) << "\n";
  }
  return kExitCheckpoint;
}

std::string ListLine(const Found& found, std::size_t width) {
  const auto manifest = checkpoint::ReadManifest(found.listed.directory);
  std::string what;
  if (manifest.ok()) {
    std::uint64_t bytes = 0;
    for (const checkpoint::StoredTensor& tensor : manifest->tensors) {
      for (const checkpoint::StoredShard& shard : tensor.shards) bytes += shard.length;
    }
    what = fmt::format("{:>6} tensors  {:>8}", manifest->tensors.size(), ByteSize(bytes));
  } else if (manifest.status().code() == StatusCode::kUnavailable) {
    what = "unknown, it cannot be read now: " + Printable(manifest.status().message());
  } else {
    what = "damaged: " + Printable(manifest.status().message());
  }
  return fmt::format("{:<{}}{}{}\n", found.name, width, what,
                     found.listed.latest ? "  latest" : "");
}

}  // namespace

int VerifyCheckpoints(const fs::path& directory, std::ostream& out) {
  if (IsOneCheckpoint(directory)) return VerifyOne(directory, NameOf(directory), out);
  const auto found = CheckpointsBelow(directory);
  if (!found.ok()) {
    out << found.status().message() << "\n";
    return kExitCheckpoint;
  }
  int exit_status = kExitOk;
  for (const auto& [listed, name] : *found) {
    if (VerifyOne(listed.directory, name, out) != kExitOk) exit_status = kExitCheckpoint;
  }
  return exit_status;
}

int ListCheckpoints(const fs::path& directory, std::ostream& out) {
  const auto found = CheckpointsBelow(directory);
  if (!found.ok()) {
    out << found.status().message() << "\n";
    return kExitCheckpoint;
  }
  std::size_t width = 12;
  for (const Found& each : *found) width = std::max(width, each.name.size() + 2);
  for (const Found& each : *found) out << ListLine(each, width);
  return kExitOk;
}

StatusOr<int> CheckpointCommand(const Invocation& invocation) {
  std::string action;
  std::string directory;
  FlagParser parser(
      "checkpoint verify|list DIR",
      "Check every byte of the checkpoints in DIR, or list them. DIR is a run "
      "directory, its checkpoints folder, one step-N, or a folder to which a script's "
      "engine saves.");
  parser.app().add_option("action", action, "verify or list");
  parser.app().add_option("DIR", directory, "the folder of the checkpoints");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  const std::string known[] = {"verify", "list"};
  if (action.empty()) {
    return InvalidArgumentError(
        "checkpoint: neither verify nor list given; see dsrun checkpoint "
        "--help");
  }
  if (std::find(std::begin(known), std::end(known), action) == std::end(known)) {
    return InvalidArgumentError("checkpoint: '" + action + "' is neither verify nor list" +
                                DidYouMean(action, known));
  }
  if (directory.empty()) {
    return InvalidArgumentError("checkpoint " + action +
                                ": no DIR given; see dsrun checkpoint --help");
  }
  // "step-20/" names the same folder as "step-20".
  fs::path path = fs::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return action == "verify" ? VerifyCheckpoints(path, std::cout) : ListCheckpoints(path, std::cout);
}

}  // namespace ds::cli
