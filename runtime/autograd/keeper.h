#pragma once

// Keeper: where tensors wait that a later pass needs and the device need not have meanwhile: on the
// device all the same, in pinned host memory, or in files. Tensors that are on the CPU already stay
// there where they would go to the host.
//
// Errors: c10::Error where files cannot be written or read. Threads: one at a time. A keeper, and
// the files it was given, outlive what is kept and the tensors that were had back.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace ds::offload {
class FileTier;
class Windows;
}  // namespace ds::offload

namespace ds::activation {

enum class KeepIn { kDevice, kHost, kFile };

// A tensor that waits; its room is free with the last copy of it and of what was had back.
class Kept {
 public:
  Kept() = default;

  bool defined() const { return here_.defined() || file_ != nullptr; }
  // Begins to bring it, where it takes time of its own (files), ahead of a Bring.
  void Prefetch() const;
  // Its values on the device that it came from. Not to be written to: values may be all there is.
  at::Tensor Bring() const;

 private:
  friend class Keeper;
  at::Tensor here_;  // on the device or the host; undefined where it is in a file
  c10::Device device_ = c10::kCPU;
  std::shared_ptr<offload::Windows> file_;
  std::vector<std::int64_t> sizes_;
  c10::ScalarType type_ = c10::kFloat;
};

class Keeper {
 public:
  Keeper() = default;  // on the device
  // `files` are of kFile.
  explicit Keeper(KeepIn where, offload::FileTier* files = nullptr)
      : where_(where), files_(files) {}

  // Tells whether tensors of the device go elsewhere.
  bool Moves(c10::Device device) const {
    return where_ == KeepIn::kFile || (where_ == KeepIn::kHost && device != c10::kCPU);
  }
  // Takes it there; what does not go elsewhere is kept as it is, without a copy.
  Kept Keep(const at::Tensor& values) const;
  // Adds to what waits, or keeps `change`, which is the keeper's from here on, where nothing does.
  void Add(const at::Tensor& change, Kept* sum) const;

 private:
  KeepIn where_ = KeepIn::kDevice;
  offload::FileTier* files_ = nullptr;
};

}  // namespace ds::activation
