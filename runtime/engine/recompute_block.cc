#include "runtime/engine/executor_parts.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace ds::engine {
namespace {

std::vector<at::Tensor*> ListDifferentiable(Bundle& bundle) {
  std::vector<at::Tensor*> tensors{&bundle.hidden, &bundle.loss};
  for (auto& [name, tensor] : bundle.extras) tensors.push_back(&tensor);
  return tensors;
}

// Replaces the memory of a block's buffers by copies; the destructor restores it. The autograd
// graph may have saved a buffer meanwhile, so the copy must not be written to afterwards.
class UnchangedBuffers {
 public:
  explicit UnchangedBuffers(const Block& block) : buffers_(block.buffers()) {
    for (at::Tensor& buffer : buffers_) {
      originals_.push_back(buffer.variable_data());
      buffer.set_data(buffer.clone());
    }
  }
  ~UnchangedBuffers() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].set_data(originals_[i]);
  }
  UnchangedBuffers(const UnchangedBuffers&) = delete;
  UnchangedBuffers& operator=(const UnchangedBuffers&) = delete;

 private:
  std::vector<at::Tensor> buffers_, originals_;
};

}  // namespace

bool TrainsParameters(const Block& block) {
  const std::vector<at::Tensor> parameters = block.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

std::vector<at::Tensor> TakeDifferentiable(Bundle* bundle) {
  std::vector<at::Tensor> tensors;
  for (at::Tensor* place : ListDifferentiable(*bundle)) tensors.push_back(std::move(*place));
  return tensors;
}

void PutDifferentiable(std::vector<at::Tensor> tensors, Bundle* bundle) {
  const std::vector<at::Tensor*> places = ListDifferentiable(*bundle);
  TORCH_CHECK(places.size() == tensors.size(), "a bundle of ", places.size(), " tensors got ",
              tensors.size());
  for (std::size_t i = 0; i < places.size(); ++i) *places[i] = std::move(tensors[i]);
}

Bundle RecomputeBlock(Block& block, Bundle bundle, activation::RecomputeOptions options) {
  std::vector<at::Tensor> inputs = TakeDifferentiable(&bundle);
  const auto left = std::make_shared<Bundle>();  // the result of the block's first run
  // `rest` has the names of the tensors that gradients flow through, but not the tensors.
  const activation::ForwardPart part =
      [&block, rest = std::move(bundle),
       first = std::weak_ptr<Bundle>(left)](activation::Tensors tensors) {
        const std::shared_ptr<Bundle> is_first = first.lock();
        std::optional<UnchangedBuffers> unchanged;
        if (!is_first) unchanged.emplace(block);
        Bundle result = rest;
        PutDifferentiable(std::move(tensors), &result);
        result = block.forward(std::move(result));
        activation::Tensors outputs = TakeDifferentiable(&result);
        if (is_first) *is_first = std::move(result);
        return outputs;
      };
  options.trains = TrainsParameters(block);
  PutDifferentiable(activation::Recompute(part, std::move(inputs), options), left.get());
  return std::move(*left);
}

}  // namespace ds::engine
