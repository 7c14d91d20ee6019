#include "runtime/plan/model/adapter_layout.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint_format/safetensors_layout.h"

namespace ds::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStoredPrefix = "base_model.model.";
constexpr std::string_view kNarrow = ".lora_A.weight", kWide = ".lora_B.weight";
constexpr std::string_view kMagnitude = ".lora_magnitude_vector";

// The tensors of one layer's adapter: the ranks of A and B, 0 if absent.
struct Tensors {
  std::int64_t narrow = 0, wide = 0;
  bool magnitudes = false;
};

// Erases a component that PEFT's wrappers insert into a name.
void Erase(std::string_view part, std::string* name) {
  if (const std::size_t at = name->find(part); at != std::string::npos) {
    name->erase(at, part.size());
  }
}

StatusOr<checkpoint::SafetensorsLayout> ReadTensors(const fs::path& folder) {
  const fs::path path = folder / kAdapterWeightsFile;
  std::error_code error;
  if (!fs::exists(path, error) && fs::exists(folder / "adapter_model.bin", error)) {
    return UnimplementedError(folder.string() +
                              ": its tensors are in adapter_model.bin, a pickle, which is never "
                              "executed here; save the adapter as safetensors (PEFT: "
                              "save_pretrained)");
  }
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, path.string());
  auto layout = checkpoint::ReadSafetensorsLayout(fd.get());
  if (!layout.ok()) return layout.status().WithContext(path.string());
  return layout;
}

Status TakeTensor(const std::string& name, const checkpoint::SafetensorsTensor& tensor,
                  std::map<std::string, Tensors>* layers) {
  const std::string layer = name.substr(0, name.rfind(".lora_"));
  Tensors& of = (*layers)[layer];
  if (name.ends_with(kMagnitude)) {
    of.magnitudes = true;
    return OkStatus();
  }
  const bool is_narrow = name.ends_with(kNarrow);
  if (tensor.shape.size() != 2) {
    return InvalidArgumentError(name + " has " + std::to_string(tensor.shape.size()) +
                                " dimensions, not 2: it was saved from a part of the model, as "
                                "ZeRO-3 without gathering does");
  }
  const std::int64_t rank = tensor.shape[is_narrow ? 0 : 1];
  if (rank < 1 || rank > kMostLoraRank) {
    return InvalidArgumentError(name + " has rank " + std::to_string(rank));
  }
  (is_narrow ? of.narrow : of.wide) = rank;
  return OkStatus();
}

Status Contradiction(const std::string& message) {
  return InvalidArgumentError(std::string(kAdapterWeightsFile) + " and " + kAdapterConfigFile +
                              " contradict each other: " + message);
}

Status CheckTensors(const std::string& layer, const Tensors& tensors, const LoraSpec& spec) {
  if (tensors.narrow == 0 || tensors.wide == 0) {
    return InvalidArgumentError(layer + " has no " +
                                (tensors.narrow == 0 ? "lora_A.weight" : "lora_B.weight"));
  }
  if (tensors.narrow != tensors.wide) {
    return InvalidArgumentError(layer + " has an A of rank " + std::to_string(tensors.narrow) +
                                " and a B of rank " + std::to_string(tensors.wide));
  }
  if (tensors.magnitudes != spec.magnitudes) {
    return Contradiction(layer + (spec.magnitudes ? " has no" : " has a") +
                         " lora_magnitude_vector, and use_dora is " +
                         (spec.magnitudes ? "true" : "false"));
  }
  DS_ASSIGN_OR_RETURN(const bool targeted, spec.rules->Targets(layer));
  if (targeted) return OkStatus();
  return Contradiction("the first has tensors of " + layer +
                       ", which target_modules, exclude_modules, modules_to_save and "
                       "layers_to_transform of the second leave out");
}

StatusOr<LoraSpec::Layer> MakeLayer(const std::string& layer, const Tensors& tensors,
                                    const LoraSpec& spec) {
  DS_RETURN_IF_ERROR(CheckTensors(layer, tensors, spec));
  DS_ASSIGN_OR_RETURN(const auto own_rank, spec.rules->RankOf(layer));
  DS_ASSIGN_OR_RETURN(const auto own_alpha, spec.rules->AlphaOf(layer));
  const double said = own_rank.value_or(static_cast<double>(spec.rank));
  if (!(said >= 1 && said <= static_cast<double>(kMostLoraRank)) || said != std::floor(said)) {
    return InvalidArgumentError(layer + ": rank_pattern of " + kAdapterConfigFile +
                                " must be a whole number from 1 to " +
                                std::to_string(kMostLoraRank));
  }
  const auto rank = static_cast<std::int64_t>(said);
  if (rank != tensors.narrow) {
    return Contradiction(layer + " has rank " + std::to_string(tensors.narrow) + ", and " +
                         (own_rank ? "rank_pattern" : "r") + " says " + std::to_string(rank));
  }
  return LoraSpec::Layer{.rank = rank, .scale = spec.ScaleOf(rank, own_alpha.value_or(spec.alpha))};
}

Status CheckFullParameters(const LoraSpec& spec) {
  for (const auto& [name, stored] : spec.full) {
    if (spec.rules->SavesInFull(name)) continue;
    return Contradiction("the first has " + name +
                         " unadapted, but modules_to_save and bias of the second do not name it");
  }
  for (const std::string& module : spec.rules->modules_to_save()) {
    const bool found = std::any_of(spec.full.begin(), spec.full.end(), [&](const auto& item) {
      return IsSavedWith(module, item.first);
    });
    if (!found) {
      return Contradiction("modules_to_save of the second names " + module +
                           ", but the first has no tensor of it");
    }
  }
  return OkStatus();
}

Status TakeTensors(const checkpoint::SafetensorsLayout& layout, LoraSpec* spec) {
  std::map<std::string, Tensors> layers;
  for (const auto& [stored, tensor] : layout) {
    DS_ASSIGN_OR_RETURN(const std::string name, ParameterOfStored(stored));
    if (IsLoraParameter(name)) {
      DS_RETURN_IF_ERROR(TakeTensor(name, tensor, &layers));
    } else if (!spec->full.emplace(name, stored).second) {
      return InvalidArgumentError(name + " is there twice");
    }
  }
  if (layers.empty()) return InvalidArgumentError("it has no tensors of adapters");
  for (const auto& [layer, tensors] : layers) {
    DS_ASSIGN_OR_RETURN(spec->layers[layer], MakeLayer(layer, tensors, *spec));
  }
  return CheckFullParameters(*spec);
}

}  // namespace

StatusOr<std::string> ParameterOfStored(std::string_view stored_name) {
  if (!stored_name.starts_with(kStoredPrefix)) {
    return InvalidArgumentError("tensor '" + std::string(stored_name) + "' is not under " +
                                std::string(kStoredPrefix) + ", as PEFT's are");
  }
  std::string name(stored_name.substr(kStoredPrefix.size()));
  const auto refuse = [&](const char* what) {
    return UnimplementedError("tensor '" + std::string(stored_name) + "' is " + what +
                              ", which is not built");
  };
  if (name.find(".lora_embedding_") != std::string::npos) {
    return refuse("of an adapter of an embedding");
  }
  if (name.find(".trainable_tokens_") != std::string::npos ||
      name.find(".token_adapter.") != std::string::npos) {
    return refuse("of single tokens (trainable_token_indices)");
  }
  if (name.find(".lora_") != std::string::npos && !IsLoraParameter(name)) {
    return refuse("of another kind of adapter");
  }
  Erase(".base_layer", &name);
  Erase(".modules_to_save", &name);
  return name;
}

Status ReadAdapterLayout(const fs::path& folder, LoraSpec* spec) {
  DS_ASSIGN_OR_RETURN(const auto layout, ReadTensors(folder));
  return TakeTensors(layout, spec).WithContext((folder / kAdapterWeightsFile).string());
}

}  // namespace ds::models
