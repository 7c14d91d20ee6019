#include "runtime/models/weights/adapter_folder.h"

#include <c10/util/accumulate.h>

#include <set>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/models/weights/same_values.h"
#include "runtime/plan/model/lora_spec.h"

namespace ds::models {
namespace {

std::string StoredName(const std::string& name) { return "base_model.model." + name; }

// Declares the adapters, and the full parameters stored under the names of `full` and `copies`.
std::vector<checkpoint::SafetensorsDeclaration> DeclareAdapters(const BlockList& model,
                                                                const FullParameterNames& full,
                                                                const FullParameterNames& copies) {
  std::vector<checkpoint::SafetensorsDeclaration> declared;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      const std::string name = block->FullName(item.key());
      const auto stored = full.find(name);
      if (stored == full.end() && !IsLoraParameter(name)) continue;
      declared.push_back({stored == full.end() ? StoredName(name) : stored->second,
                          item.value().scalar_type(),
                          block->DescribePlacement(item.key(), item.value()).global_shape});
      const auto copy = copies.find(name);
      if (copy == copies.end()) continue;
      declared.push_back(declared.back());
      declared.back().name = copy->second;
    }
  }
  return declared;
}

}  // namespace

StatusOr<std::unique_ptr<AdapterReader>> AdapterReader::Open(const std::filesystem::path& folder) {
  DS_ASSIGN_OR_RETURN(auto file, checkpoint::SafetensorsFile::Open(folder / kAdapterWeightsFile));
  std::unique_ptr<AdapterReader> reader(new AdapterReader(std::move(file)));
  for (const auto& [stored, entry] : reader->file_.entries()) {
    DS_ASSIGN_OR_RETURN(const std::string name, ParameterOfStored(stored));
    if (!IsLoraParameter(name)) reader->full_[name] = stored;
  }
  return reader;
}

Status AdapterReader::CheckCopy(const std::string& stored, const std::string& copy) const {
  const std::int64_t all = c10::multiply_integers(file_.entries().at(stored).shape);
  const auto reader_of = [&](const std::string& name) -> SliceReader {
    return [&](std::int64_t first, const at::Tensor& values) {
      return file_.Read(name, first, values);
    };
  };
  DS_ASSIGN_OR_RETURN(const bool same, HoldSameValues(all, reader_of(stored), reader_of(copy)));
  if (same) return OkStatus();
  return InvalidArgumentError(file_.path().string() + ": " + stored + " and " + copy +
                              " have different values, and the model ties the head to the "
                              "embedding: they are one; give both the values that count");
}

Status AdapterReader::Check(const BlockList& model, const FullParameterNames& copies) const {
  std::set<std::string> wanted;
  for (const auto& declared : DeclareAdapters(model, full_, copies)) {
    DS_RETURN_IF_ERROR(file_.CheckReadable(declared.name, declared.shape, declared.dtype));
    wanted.insert(declared.name);
  }
  for (const auto& [name, entry] : file_.entries()) {
    if (wanted.contains(name)) continue;
    return InvalidArgumentError(file_.path().string() + ": the model has no place for " + name);
  }
  for (const auto& [name, copy] : copies) {
    DS_RETURN_IF_ERROR(CheckCopy(full_.at(name), copy));
  }
  return OkStatus();
}

bool AdapterReader::Has(const std::string& name) const {
  return IsLoraParameter(name) || full_.contains(name);
}

Status AdapterReader::Read(const std::string& name, std::int64_t first,
                           const at::Tensor& values) const {
  const auto stored = full_.find(name);
  return file_.Read(stored == full_.end() ? StoredName(name) : stored->second, first, values);
}

StatusOr<std::unique_ptr<AdapterWriter>> AdapterWriter::Create(const std::filesystem::path& folder,
                                                               const BlockList& model,
                                                               nlohmann::ordered_json config,
                                                               FullParameterNames full,
                                                               FullParameterNames copies) {
  DS_RETURN_IF_ERROR(MakeDirectories(folder));
  std::unique_ptr<AdapterWriter> writer(
      new AdapterWriter(folder, std::move(config), std::move(full), std::move(copies)));
  DS_ASSIGN_OR_RETURN(writer->writer_, checkpoint::SafetensorsWriter::Create(
                                           folder / kAdapterWeightsFile,
                                           DeclareAdapters(model, writer->full_, writer->copies_)));
  return writer;
}

Status AdapterWriter::Write(const std::string& name, const at::Tensor& tensor) {
  if (const auto copy = copies_.find(name); copy != copies_.end()) {
    DS_RETURN_IF_ERROR(writer_->Write(copy->second, tensor));
  }
  const auto stored = full_.find(name);
  return writer_->Write(stored == full_.end() ? StoredName(name) : stored->second, tensor);
}

Status AdapterWriter::Finish() {
  DS_RETURN_IF_ERROR(writer_->Commit());
  return WriteFileAtomically(folder_ / kAdapterConfigFile, config_.dump(2) + "\n");
}

}  // namespace ds::models
