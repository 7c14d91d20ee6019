#include "cli/commands/checkpoint_command.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/printable.h"
#include "runtime/base/suggest.h"
#include "runtime/checkpoint_format/catalog.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/verify.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::ListedCheckpoint;

std::string NameOf(const fs::path& directory) { return directory.filename().string(); }

// True if `directory` denotes one checkpoint, in any state.
bool IsOneCheckpoint(const fs::path& directory) {
  std::error_code ignored;
  return checkpoint::StepOfDirectoryName(NameOf(directory)).has_value() ||
         fs::exists(directory / checkpoint::kManifestFile, ignored);
}

// Returns the checkpoints in a run directory or in a folder of checkpoints.
StatusOr<std::vector<ListedCheckpoint>> CheckpointsBelow(const fs::path& directory) {
  std::error_code ignored;
  const fs::path of_run = directory / "checkpoints";
  const fs::path root = fs::is_directory(of_run, ignored) ? of_run : directory;
  DS_ASSIGN_OR_RETURN(std::vector<ListedCheckpoint> found, checkpoint::ListCheckpoints(root));
  if (found.empty()) return NotFoundError(root.string() + ": there is no checkpoint in it");
  return found;
}

int VerifyOne(const fs::path& directory, std::ostream& out) {
  const StatusOr<checkpoint::VerifyReport> report = checkpoint::VerifyCheckpoint(directory);
  if (report.status().code() == StatusCode::kUnavailable) {
    out << fmt::format("{}: unknown, it cannot be read now: {}\n", NameOf(directory),
                       Printable(report.status().message()));
    return kExitCheckpoint;
  }
  if (!report.ok()) {
    out << fmt::format("{}: no checkpoint: {}\n", NameOf(directory),
                       Printable(report.status().message()));
    return kExitCheckpoint;
  }
  if (report->ok()) {
    out << fmt::format("{}: good: {} tensors, {}\n", NameOf(directory), report->tensors,
                       ByteSize(report->data_bytes));
    return kExitOk;
  }
  out << fmt::format("{}: damaged\n", NameOf(directory));
  for (const checkpoint::Damage& damage : report->damages) {
    out << "  " << Printable(checkpoint::Describe(damage)) << "\n";
  }
  return kExitCheckpoint;
}

std::string ListLine(const ListedCheckpoint& listed) {
  const auto manifest = checkpoint::ReadManifest(listed.directory);
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
  return fmt::format("{:<12}{}{}\n", NameOf(listed.directory), what,
                     listed.latest ? "  latest" : "");
}

}  // namespace

int VerifyCheckpoints(const fs::path& directory, std::ostream& out) {
  if (IsOneCheckpoint(directory)) return VerifyOne(directory, out);
  const auto found = CheckpointsBelow(directory);
  if (!found.ok()) {
    out << found.status().message() << "\n";
    return kExitCheckpoint;
  }
  int exit_status = kExitOk;
  for (const ListedCheckpoint& listed : *found) {
    if (VerifyOne(listed.directory, out) != kExitOk) exit_status = kExitCheckpoint;
  }
  return exit_status;
}

int ListCheckpoints(const fs::path& directory, std::ostream& out) {
  const auto found = CheckpointsBelow(directory);
  if (!found.ok()) {
    out << found.status().message() << "\n";
    return kExitCheckpoint;
  }
  for (const ListedCheckpoint& listed : *found) out << ListLine(listed);
  return kExitOk;
}

StatusOr<int> CheckpointCommand(const Invocation& invocation) {
  std::string action;
  std::string directory;
  FlagParser parser("checkpoint verify|list DIR",
                    "Check every byte of the checkpoints in DIR, or list them. DIR is a run "
                    "directory, its checkpoints folder or one step-N.");
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
