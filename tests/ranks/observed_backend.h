#pragma once

// ObservedBackend: another backend's collectives, of which a function is told before they happen.

#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace ds::tests {

class ObservedBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  // Takes what this rank gives; may throw.
  using Observer = std::function<void(c10d::OpType, const at::Tensor&)>;

  ObservedBackend(c10::intrusive_ptr<c10d::Backend> below, Observer observer)
      : c10d::Backend(below->getRank(), below->getSize()),
        below_(std::move(below)),
        observer_(std::move(observer)) {}

  const std::string getBackendName() const override { return "observed"; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    observer_(c10d::OpType::ALLREDUCE, tensors.at(0));
    return below_->allreduce(tensors, options);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    observer_(c10d::OpType::BROADCAST, tensors.at(0));
    return below_->broadcast(tensors, options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    observer_(c10d::OpType::_ALLGATHER_BASE, input);
    return below_->_allgather_base(output, input, options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    observer_(c10d::OpType::_REDUCE_SCATTER_BASE, input);
    return below_->_reduce_scatter_base(output, input, options);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> below_;
  Observer observer_;
};

}  // namespace ds::tests
