#pragma once

// ShareAmongProducts: the products of one input by weights whose outputs tensor ranks have between
// them. Threads: that of the pass. Collective.

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "runtime/models/layers/layers.h"
#include "runtime/parallel/tensor/group.h"

namespace ds::models {

// Each product of users.Share(x), in the order of the products. Where the sums of `users` overlap,
// all products are Affine's alone and autocast is off, by SharedAffine: the same bits. `place` is
// Product::forward's.
std::vector<at::Tensor> ShareAmongProducts(const at::Tensor& x,
                                           const std::vector<const Product*>& products,
                                           const tensor_parallel::Group& users,
                                           std::string_view tag, const RandomPlace* place);

}  // namespace ds::models
