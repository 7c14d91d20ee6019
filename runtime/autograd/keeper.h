#pragma once

// Keeper stores tensors that a later pass needs and that the device can release meanwhile: on the
// device anyway, in pinned host memory, or in files. With host storage, CPU tensors stay as they
// are.
//
// Errors: c10::Error if files cannot be written or read. Not thread-safe. A keeper and its files
// must outlive the kept tensors and the tensors returned by Bring.

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

// A stored tensor. Its storage is freed with its last copy and the last tensor from Bring.
class SavedTensor {
 public:
  SavedTensor() = default;

  bool defined() const { return here_.defined() || file_ != nullptr; }
  // Starts to read the tensor ahead of Bring, if it is in a file.
  void Prefetch() const;
  // Returns the values on their original device. Do not modify them: they may be the only copy.
  at::Tensor Bring() const;

 private:
  friend class Keeper;
  at::Tensor here_;  // on the device or the host; undefined if in a file
  c10::Device device_ = c10::kCPU;
  std::shared_ptr<offload::Windows> file_;
  std::vector<std::int64_t> sizes_;
  c10::ScalarType type_ = c10::kFloat;
};

class Keeper {
 public:
  Keeper() = default;  // on the device
  // `files` is required for kFile.
  explicit Keeper(KeepIn where, offload::FileTier* files = nullptr)
      : where_(where), files_(files) {}

  // Returns whether tensors of the device are moved elsewhere.
  bool Moves(c10::Device device) const {
    return where_ == KeepIn::kFile || (where_ == KeepIn::kHost && device != c10::kCPU);
  }
  // Stores a tensor. Without a move it keeps the tensor itself, without a copy.
  SavedTensor Keep(const at::Tensor& values) const;
  // Adds `change` to the stored sum. If there is none, stores `change` itself; the caller must not
  // use it afterwards.
  void Add(const at::Tensor& change, SavedTensor* sum) const;

 private:
  KeepIn where_ = KeepIn::kDevice;
  offload::FileTier* files_ = nullptr;
};

}  // namespace ds::activation
