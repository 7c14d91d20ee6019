#pragma once

// DerivedValues: initial values computed from the weights of the base model. These are the bytes of
// quantised weights, and the initial magnitudes of DoRA. Magnitudes are the row norms of the
// weight, after quantisation if it is quantised.
//
// Not thread-safe.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/models/block.h"
#include "runtime/models/layers/layers.h"

namespace ds::models {

class DerivedValues {
 public:
  // Fills `values`, contiguous, with elements of a base model weight, as stored.
  using ReadWeight =
      std::function<Status(const std::string& name, std::int64_t first, const at::Tensor& values)>;
  explicit DerivedValues(const BlockList& model);

  // Returns whether the parameter with this full name is a derived value.
  static bool Has(const std::string& name);
  // Fills `values` with elements [first, first + values.numel()) of a derived parameter, counted in
  // the unsharded parameter if tensor ranks share it. Reads the full weight for that.
  Status Read(const std::string& name, std::int64_t first, const at::Tensor& values,
              const ReadWeight& read);

  // Returns the weight that a quantised parameter (IsQuantizedParameter) stands for, in the layout
  // of the base model. NameWeight returns the weight's name.
  at::Tensor Restore(const std::string& name, const at::Tensor& bytes) const;
  static std::string NameWeight(const std::string& name);

 private:
  StatusOr<at::Tensor> Derive(const std::string& name, const ReadWeight& read) const;

  // Sizes of the full weight; this rank's product may have a part of it.
  struct Layer {
    std::shared_ptr<Product> product;
    std::int64_t in = 0, out = 0;
  };

  std::map<std::string, Layer> layers_;  // by full name
  // The last derived value is cached, because the next call usually asks for more of it.
  std::string last_name_;
  at::Tensor last_;
};

}  // namespace ds::models
