#pragma once

// ObservedBackend: another backend's collectives, of which a function is told before they happen,
// and another one, if there is one, before somebody waits for their end.

#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace ds::tests {

class ObservedWork : public c10d::Work {
 public:
  ObservedWork(c10::intrusive_ptr<c10d::Work> below, std::function<void()> on_wait)
      : below_(std::move(below)), on_wait_(std::move(on_wait)) {}

  bool isCompleted() override { return below_->isCompleted(); }
  bool isSuccess() const override { return below_->isSuccess(); }
  std::exception_ptr exception() const override { return below_->exception(); }
  bool wait(std::chrono::milliseconds timeout) override {
    on_wait_();
    return below_->wait(timeout);
  }

 private:
  c10::intrusive_ptr<c10d::Work> below_;
  std::function<void()> on_wait_;
};

class ObservedBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  // Takes what this rank gives; may throw.
  using Observer = std::function<void(c10d::OpType, const at::Tensor&)>;

  ObservedBackend(c10::intrusive_ptr<c10d::Backend> below, Observer observer, Observer on_wait = {})
      : c10d::Backend(below->getRank(), below->getSize()),
        below_(std::move(below)),
        observer_(std::move(observer)),
        on_wait_(std::move(on_wait)) {}

  const std::string getBackendName() const override { return "observed"; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    observer_(c10d::OpType::ALLREDUCE, tensors.at(0));
    return Watch(below_->allreduce(tensors, options), c10d::OpType::ALLREDUCE, tensors.at(0));
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    observer_(c10d::OpType::BROADCAST, tensors.at(0));
    return below_->broadcast(tensors, options);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    observer_(c10d::OpType::REDUCE, tensors.at(0));
    return below_->reduce(tensors, options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    observer_(c10d::OpType::_ALLGATHER_BASE, input);
    return Watch(below_->_allgather_base(output, input, options), c10d::OpType::_ALLGATHER_BASE,
                 input);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    observer_(c10d::OpType::_REDUCE_SCATTER_BASE, input);
    return Watch(below_->_reduce_scatter_base(output, input, options),
                 c10d::OpType::_REDUCE_SCATTER_BASE, input);
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& to,
                        std::vector<std::int64_t>& from,
                        const c10d::AllToAllOptions& options) override {
    observer_(c10d::OpType::ALLTOALL_BASE, input);
    return Watch(below_->alltoall_base(output, input, to, from, options),
                 c10d::OpType::ALLTOALL_BASE, input);
  }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    observer_(c10d::OpType::SEND, tensors.at(0));
    return below_->send(tensors, to, tag);
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    observer_(c10d::OpType::RECV, tensors.at(0));
    return below_->recv(tensors, from, tag);
  }

 private:
  WorkPtr Watch(WorkPtr work, c10d::OpType op, const at::Tensor& given) {
    if (!on_wait_) return work;
    return c10::make_intrusive<ObservedWork>(std::move(work),
                                             [this, op, given] { on_wait_(op, given); });
  }

  c10::intrusive_ptr<c10d::Backend> below_;
  Observer observer_;
  Observer on_wait_;
};

}  // namespace ds::tests
