#include <algorithm>
#include <array>
#include <set>

#include "runtime/models/weights/same_values.h"
#include "runtime/models/weights/weights.h"
#include "runtime/plan/model/lora_spec.h"

namespace ds::models {

using checkpoint::SafetensorsFile;

StatusOr<std::unique_ptr<WeightReader>> WeightReader::Open(const std::filesystem::path& folder) {
  DS_ASSIGN_OR_RETURN(auto files, WeightFiles::Open(folder));
  if (!files) return std::unique_ptr<WeightReader>();
  std::unique_ptr<WeightReader> reader(new WeightReader(*std::move(files)));
  for (const std::filesystem::path& path : reader->files_.paths()) {
    DS_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    reader->opened_.emplace(path, std::make_unique<SafetensorsFile>(std::move(file)));
  }
  return reader;
}

StatusOr<std::vector<std::string>> WeightReader::Check(const BlockList& model) const {
  std::set<std::string> used;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      if (IsLoraParameter(item.key()) || IsQuantizedParameter(item.key())) continue;
      const std::string name = block->FullName(item.key());
      DS_RETURN_IF_ERROR(
          files_.Check(name, block->DescribePlacement(item.key(), item.value()).global_shape));
      used.insert(files_.FindStoredName(name));
    }
  }
  return files_.ListOthers(used);
}

Status WeightReader::CheckTiedHead(const DecoderSpec& spec,
                                   std::vector<std::string>* unused) const {
  const std::string head = std::string(spec.names.head) + ".weight";
  const auto stored = std::find(unused->begin(), unused->end(), head);
  if (!spec.tied_head || stored == unused->end()) return OkStatus();
  const std::string base = spec.names.base;
  const std::string table = (base.empty() ? "" : base + ".") + spec.names.tokens + ".weight";
  const std::int64_t all = spec.vocabulary * spec.width;
  DS_RETURN_IF_ERROR(files_.Check(head, std::array{spec.vocabulary, spec.width}));
  const auto reader_of = [this](const std::string& name) -> PartReader {
    return [&](std::int64_t first, const at::Tensor& values) { return Read(name, first, values); };
  };
  DS_ASSIGN_OR_RETURN(const bool same, HoldSameValues(all, reader_of(head), reader_of(table)));
  if (!same) {
    return InvalidArgumentError(files_.paths().front().parent_path().string() +
                                ": config.json ties the head to the token table, and " + head +
                                " has other values; to train both, as transformers does then, set "
                                "\"tie_word_embeddings\" to false in config.json");
  }
  unused->erase(stored);
  return OkStatus();
}

Status WeightReader::Read(const std::string& name, std::int64_t first,
                          const at::Tensor& values) const {
  const std::string stored_name = files_.FindStoredName(name);
  DS_ASSIGN_OR_RETURN(const std::filesystem::path* path, files_.FindFile(stored_name));
  return opened_.at(*path)->Read(stored_name, first, values);
}

}  // namespace ds::models
