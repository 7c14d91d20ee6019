#pragma once

// DerivedValues: first values that follow from the weights of the model below: the bytes that stand
// for them where they are quantised, and the magnitudes with which DoRA begins, which are the norms
// of the weights' rows, of what the bytes stand for if there are any.
//
// Threads: one at a time.

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
  // Fills `values`, contiguous, with elements of a weight of the model below, as stored.
  using ReadWeight =
      std::function<Status(const std::string& name, std::int64_t first, const at::Tensor& values)>;
  explicit DerivedValues(const BlockList& model);

  // Tells whether the parameter with this full name is one of them.
  static bool Has(const std::string& name);
  // Fills `values` with the elements [first, first + values.numel()) of such a parameter, of the
  // whole one where tensor ranks have it between them. The whole weight is read meanwhile.
  Status Read(const std::string& name, std::int64_t first, const at::Tensor& values,
              const ReadWeight& read);

  // Returns what the bytes of a parameter IsQuantizedParameter stand for, as the model below stores
  // the weight, whose name follows.
  at::Tensor Restore(const std::string& name, const at::Tensor& bytes) const;
  static std::string NameWeight(const std::string& name);

 private:
  StatusOr<at::Tensor> Derive(const std::string& name, const ReadWeight& read) const;

  // The sizes are those of the whole weight, of which this rank's product may have a part.
  struct Layer {
    std::shared_ptr<Product> product;
    std::int64_t in = 0, out = 0;
  };

  std::map<std::string, Layer> layers_;  // by full name
  std::string last_name_;  // what was derived last, for the rest of it is likely to be asked for
  at::Tensor last_;
};

}  // namespace ds::models
