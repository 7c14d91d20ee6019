#include "runtime/models/adapter_folder.h"

#include <set>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/models/spec/lora_spec.h"

namespace ds::models {
namespace {

std::string StoredName(const std::string& name) { return "base_model.model." + name; }

// Adapters, and the parameters that are saved whole under the names of `whole`.
std::vector<checkpoint::SafetensorsDeclaration> DeclareAdapters(
    const BlockList& model, const std::map<std::string, std::string>& whole) {
  std::vector<checkpoint::SafetensorsDeclaration> declared;
  for (const auto& block : model.blocks()) {
    for (const auto& item : block->named_parameters()) {
      const std::string name = block->FullName(item.key());
      const auto stored = whole.find(name);
      if (stored == whole.end() && !IsLoraParameter(name)) continue;
      declared.push_back({stored == whole.end() ? StoredName(name) : stored->second,
                          item.value().scalar_type(),
                          block->DescribePlacement(item.key(), item.value()).global_shape});
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
    if (!IsLoraParameter(name)) reader->whole_[name] = stored;
  }
  return reader;
}

Status AdapterReader::Check(const BlockList& model) const {
  std::set<std::string> wanted;
  for (const checkpoint::SafetensorsDeclaration& declared : DeclareAdapters(model, whole_)) {
    DS_RETURN_IF_ERROR(file_.CheckReadable(declared.name, declared.shape, declared.dtype));
    wanted.insert(declared.name);
  }
  for (const auto& [name, entry] : file_.entries()) {
    if (wanted.contains(name)) continue;
    return InvalidArgumentError(file_.path().string() + ": the model has no place for " + name);
  }
  return OkStatus();
}

bool AdapterReader::Has(const std::string& name) const {
  return IsLoraParameter(name) || whole_.contains(name);
}

Status AdapterReader::Read(const std::string& name, std::int64_t first,
                           const at::Tensor& values) const {
  const auto stored = whole_.find(name);
  return file_.Read(stored == whole_.end() ? StoredName(name) : stored->second, first, values);
}

StatusOr<std::unique_ptr<AdapterWriter>> AdapterWriter::Create(const std::filesystem::path& folder,
                                                               const BlockList& model,
                                                               nlohmann::ordered_json config,
                                                               WholeNames whole) {
  DS_RETURN_IF_ERROR(MakeDirectories(folder));
  std::unique_ptr<AdapterWriter> writer(
      new AdapterWriter(folder, std::move(config), std::move(whole)));
  DS_ASSIGN_OR_RETURN(writer->writer_,
                      checkpoint::SafetensorsWriter::Create(
                          folder / kAdapterWeightsFile, DeclareAdapters(model, writer->whole_)));
  return writer;
}

Status AdapterWriter::Write(const std::string& name, const at::Tensor& tensor) {
  const auto stored = whole_.find(name);
  return writer_->Write(stored == whole_.end() ? StoredName(name) : stored->second, tensor);
}

Status AdapterWriter::Finish() {
  DS_RETURN_IF_ERROR(writer_->Commit());
  return WriteFileAtomically(folder_ / kAdapterConfigFile, config_.dump(2) + "\n");
}

}  // namespace ds::models
