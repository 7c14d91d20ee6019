#include "runtime/zero/unit.h"

#include <torch/csrc/autograd/variable.h>

namespace ds::zero {
namespace {

using HookPtr = std::unique_ptr<torch::autograd::PostAccumulateGradHook>;

// Takes a parameter's gradient as soon as the autograd engine has stored it. Unless the gradient is
// written directly into the flat buffer, both coexist for one operation only. A user's own hook
// runs first.
class TakeGradient : public gradients::GradientSink {
 public:
  TakeGradient(FlatGradients& gradients, int parameter, HookPtr own)
      : own_(std::move(own)), gradients_(gradients), parameter_(parameter) {}

  HookPtr GiveBack() { return std::move(own_); }
  bool IsFor(const FlatGradients& gradients) const { return &gradients_ == &gradients; }

  void operator()(const torch::autograd::Variable& variable) override {
    if (own_) (*own_)(variable);
    if (!variable.grad().defined()) return;  // taken by the user's hook
    gradients_.Add(parameter_, variable.grad());
    variable.mutable_grad().reset();
  }

  bool Put(const at::Tensor& parameter, const gradients::WriteGradient& write,
           gradients::PlaceDtype dtype) override {
    return own_ == nullptr && gradients_.Put(parameter_, parameter, write, dtype);
  }

 private:
  HookPtr own_;  // the user's hook; may be null
  FlatGradients& gradients_;
  int parameter_;
};

// Returns null if the parameter has no hook, or only a user's.
TakeGradient* FindTakeGradient(const at::Tensor& parameter) {
  return dynamic_cast<TakeGradient*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
}

}  // namespace

Unit::Unit(const Context& context, BufferPool& pool, const ParameterUnit& described, Rest rest)
    : name_(described.name),
      also_reads_(described.also_reads),
      backward_reads_(described.backward_reads) {
  for (std::vector<NamedParameter>& members : BucketParameters(described.parameters)) {
    const Context& own = context.For(members[0].placement);
    buckets_.push_back(std::make_unique<Bucket>(own, pool, std::move(members), rest));
    if (buckets_.back()->trainable()) AttachHooks(*buckets_.back());
  }
}

bool Unit::HasHookOn(const at::Tensor& parameter) {
  // A parameter that could never be trained has no autograd metadata.
  const bool is_known_to_autograd = torch::autograd::impl::get_autograd_meta(parameter) != nullptr;
  return is_known_to_autograd && FindTakeGradient(parameter) != nullptr;
}

void Unit::AttachHooks(Bucket& bucket) {
  for (int i = 0; i < bucket.parameters().layout().size(); ++i) {
    const at::Tensor& parameter = bucket.parameters().parameter(i).tensor;
    HookPtr own = std::move(torch::autograd::impl::post_acc_grad_hooks(parameter));
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameter, std::make_unique<TakeGradient>(bucket.gradients(), i, std::move(own)));
  }
}

Unit::~Unit() {
  for (const auto& bucket : buckets_) {
    if (!bucket->trainable()) continue;
    for (int i = 0; i < bucket->parameters().layout().size(); ++i) {
      const at::Tensor& parameter = bucket->parameters().parameter(i).tensor;
      TakeGradient* const hook = FindTakeGradient(parameter);
      if (hook != nullptr && hook->IsFor(bucket->gradients())) {
        torch::autograd::impl::set_post_acc_grad_hooks(parameter, hook->GiveBack());
      }
    }
  }
}

void Unit::Gather() {
  for (const auto& bucket : buckets_) bucket->parameters().Gather();
}

void Unit::AwaitParameters() {
  for (const auto& bucket : buckets_) bucket->parameters().Await();
}

void Unit::AwaitGradients() {
  for (const auto& bucket : buckets_) {
    if (bucket->trainable()) bucket->gradients().Await();
  }
}

void Unit::Release() {
  for (const auto& bucket : buckets_) bucket->parameters().Release();
}

void Unit::Fetch() {
  for (const auto& bucket : buckets_) bucket->parameters().Fetch();
}

void Unit::Stow() {
  for (const auto& bucket : buckets_) bucket->parameters().Stow();
}

void Unit::EndMicroBatch(MicroBatchEnd end) {
  for (const auto& bucket : buckets_) {
    if (bucket->trainable()) bucket->gradients().EndMicroBatch(end);
  }
}

}  // namespace ds::zero
