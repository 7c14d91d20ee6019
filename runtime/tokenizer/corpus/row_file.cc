#include "runtime/tokenizer/corpus/row_file.h"

#include <dlfcn.h>

#include <array>

#include "runtime/base/files.h"

namespace ds::tokenizer {
namespace {

namespace fs = std::filesystem;

// Looks next to the program, for tests next to the programs, and in the installed location.
StatusOr<const DsArrowPlugin*> LoadPlugin() {
  DS_ASSIGN_OR_RETURN(const fs::path program, FindOwnExecutable());
  const fs::path folder = program.parent_path();
  std::error_code error;
  const fs::path above = folder.parent_path();
  for (const fs::path& directory : {folder, above / "bin", above / "lib"}) {
    const fs::path file = directory / kArrowPluginFile;
    if (!fs::exists(file, error)) continue;
    // Never unloaded, since Arrow has threads of its own.
    void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return NotFoundError(std::string(::dlerror()));
    const auto entry = reinterpret_cast<DsArrowPluginEntry>(::dlsym(handle, kArrowPluginEntry));
    const DsArrowPlugin* const plugin = entry == nullptr ? nullptr : entry(kArrowPluginVersion);
    if (plugin != nullptr) return plugin;
    return FailedPreconditionError(file.string() + " belongs to another version of dsrun");
  }
  return NotFoundError("this build has no " + std::string(kArrowPluginFile));
}

}  // namespace

StatusOr<RowFile> RowFile::Open(const fs::path& path) {
  const auto plugin = LoadPlugin();
  if (!plugin.ok()) {
    return UnimplementedError(ShortenPath(path) +
                              ": Parquet and Arrow files need Arrow's libraries (" +
                              std::string(plugin.status().message()) +
                              "); scripts/setup.sh fetches them when the network is there, and "
                              "builds the plugin: call it again, or write .jsonl");
  }
  std::array<char, 1024> error{};
  DsRowFile* const file = (*plugin)->open(path.c_str(), error.data(), error.size());
  if (file != nullptr) return RowFile(path, *plugin, file);
  return InvalidArgumentError(ShortenPath(path) + ": " + error.data());
}

StatusOr<std::optional<RowBatch>> RowFile::Next() {
  const char* lines = nullptr;
  std::size_t size = 0;
  std::array<char, 1024> error{};
  const std::int64_t rows = plugin_->next(file_.get(), &lines, &size, error.data(), error.size());
  if (rows == 0) return std::optional<RowBatch>();
  if (rows < 0) {
    return DataLossError(ShortenPath(path_) + ":" + std::to_string(next_row_) +
                         ": the rows from here on cannot be read: " + error.data());
  }
  RowBatch read{.lines = std::string(lines, size), .first = next_row_, .line_numbers = {}};
  next_row_ += static_cast<std::uint64_t>(rows);
  return std::optional(std::move(read));
}

}  // namespace ds::tokenizer
