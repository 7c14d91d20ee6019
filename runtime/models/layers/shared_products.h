#pragma once

// ShareAmongProducts: multiplies one input with several weights; tensor ranks shard their outputs.
// Use it on the thread of the pass. Collective: all ranks of the group call it.

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "runtime/models/layers/layers.h"
#include "runtime/parallel/tensor/group.h"

namespace ds::models {

// Returns each product of users.Share(x), in the order of the products. Uses SharedAffine, with the
// same bits, if the sums of `users` overlap, all products are plain affine maps, and autocast is
// off. `origin` is passed to Product::forward.
std::vector<at::Tensor> ShareAmongProducts(const at::Tensor& x,
                                           const std::vector<const Product*>& products,
                                           const tensor_parallel::TensorGroup& users,
                                           std::string_view tag, const RandomPosition* origin);

}  // namespace ds::models
