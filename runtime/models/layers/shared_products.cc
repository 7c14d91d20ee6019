#include "runtime/models/layers/shared_products.h"

#include <ATen/autocast_mode.h>

#include <optional>
#include <utility>

#include "runtime/models/kernels/matmul.h"

namespace ds::models {

std::vector<at::Tensor> ShareAmongProducts(const at::Tensor& x,
                                           const std::vector<const Product*>& products,
                                           const tensor_parallel::TensorGroup& users,
                                           std::string_view tag, const RandomPosition* origin) {
  std::vector<AffineWeights> weights;
  for (const Product* product : products) {
    if (auto affine = product->FindAffine()) weights.push_back(*std::move(affine));
  }
  const bool is_one_sum =
      weights.size() == products.size() && !at::autocast::is_autocast_enabled(x.device().type());
  if (users.sums_overlap() && x.requires_grad() && is_one_sum) {
    return SharedAffine(x, weights, users, tag);
  }
  const at::Tensor shared = users.Share(x, tag);
  std::vector<at::Tensor> results;
  for (const Product* product : products) results.push_back(product->forward(shared, origin));
  return results;
}

}  // namespace ds::models
