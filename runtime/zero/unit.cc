#include "runtime/zero/unit.h"

#include <c10/util/Exception.h>

namespace ds::zero {
namespace {

// Takes a parameter's gradient as soon as autograd has stored it. Unless the gradient is written
// directly into the flat buffer, both coexist for one operation only.
class TakeGradient : public gradients::GradientSink {
 public:
  TakeGradient(FlatGradients& gradients, int index, const NamedParameter& parameter)
      : GradientSink(parameter.tensor),
        gradients_(gradients),
        index_(index),
        name_(parameter.name) {}

  void Take(const at::Tensor& gradient) override {
    CheckIsExpected();
    gradients_.Add(index_, gradient);
  }

  bool Put(const gradients::WriteGradient& write, gradients::DestinationDtype dtype) override {
    CheckIsExpected();
    return gradients_.Put(index_, parameter(), write, dtype);
  }

 private:
  void CheckIsExpected() const {
    TORCH_CHECK(gradients_.accepts(), "a gradient of ", name_,
                " comes from a backward pass that the engine has not started, and would not be "
                "trained on: call engine.backward(loss) in place of loss.backward()");
  }

  FlatGradients& gradients_;
  int index_;
  const std::string& name_;
};

}  // namespace

Unit::Unit(const Context& context, BufferPool& pool, const ParameterUnit& described,
           StorageTier storage_tier)
    : name_(described.name),
      also_reads_(described.also_reads),
      backward_reads_(described.backward_reads) {
  for (std::vector<NamedParameter>& members : BucketParameters(described.parameters)) {
    const Context& own = context.For(members[0].placement);
    buckets_.push_back(std::make_unique<Bucket>(own, pool, std::move(members), storage_tier));
    if (buckets_.back()->trainable()) AttachSinks(*buckets_.back());
  }
}

bool Unit::IsTrained(const at::Tensor& parameter) {
  return dynamic_cast<TakeGradient*>(gradients::FindSink(parameter)) != nullptr;
}

void Unit::AttachSinks(Bucket& bucket) {
  for (int i = 0; i < bucket.parameters().layout().size(); ++i) {
    sinks_.emplace_back(
        std::make_unique<TakeGradient>(bucket.gradients(), i, bucket.parameters().parameter(i)));
  }
}

void Unit::AcceptGradients(bool accepts) {
  for (const auto& bucket : buckets_) {
    if (bucket->trainable()) bucket->gradients().set_accepts(accepts);
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

void Unit::Offload() {
  for (const auto& bucket : buckets_) bucket->parameters().Offload();
}

void Unit::EndMicroBatch(MicroBatchEnd end) {
  for (const auto& bucket : buckets_) {
    if (bucket->trainable()) bucket->gradients().EndMicroBatch(end);
  }
}

}  // namespace ds::zero
