#pragma once

// A part of a training job for checkpoint tests: tensors with known values, held by the ranks in
// one of the ways that the runtime has.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint/stateful.h"

namespace ds::checkpoint {

enum class Holding {
  kReplicated,  // every rank holds all of it (ZeRO 0)
  kFlatShards,  // each rank holds an equal padded part of the flattened tensor (ZeRO 1 to 3)
  kColumns,     // each rank holds a block of columns (tensor parallelism)
};

struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

class FlatTensors : public Stateful {
 public:
  FlatTensors(std::vector<TensorSpec> specs, Holding holding, int rank, int world_size);

  // Element i of tensor t becomes a value made of t, i and `salt`; the state becomes `salt`.
  void Fill(int salt);
  // Everything becomes -1.
  void Clear();
  // Expects what Fill(salt) would have given.
  void ExpectFilled(int salt) const;

  std::string_view state_name() const override { return "engine"; }
  void AddShards(std::vector<TensorShard>* shards) override;
  nlohmann::json State() const override { return {{"salt", salt_}}; }
  Status LoadState(const nlohmann::json& state) override;

 private:
  std::vector<at::Tensor> ExpectedParts(int salt) const;

  std::vector<TensorSpec> specs_;
  Holding holding_;
  int rank_;
  int world_size_;
  std::vector<at::Tensor> held_;
  std::vector<TensorShard> shards_;  // of them
  int salt_ = -1;
};

}  // namespace ds::checkpoint
