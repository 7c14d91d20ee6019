#include "runtime/checkpoint/tensor_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ds::checkpoint {
namespace {

std::span<const std::byte> BytesOf(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::span<std::byte> MutableBytesOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

class FullTensor : public TensorSource {
 public:
  explicit FullTensor(at::Tensor tensor) : tensor_(std::move(tensor)) {
    DS_CHECK_MSG(tensor_.defined() && tensor_.dim() == 1 && tensor_.is_contiguous(),
                 "a checkpoint's tensor is not 1-D and contiguous");
  }

  std::int64_t count() const override { return tensor_.numel(); }
  at::ScalarType dtype() const override { return tensor_.scalar_type(); }

  // Data on another device is copied through host memory.
  Status Read(std::int64_t first, std::int64_t count, const TakeBytes& take) override {
    return take(BytesOf(tensor_.narrow(0, first, count).cpu()));
  }

  Status Write(std::int64_t first, std::int64_t count, const FillBytes& fill) override {
    const at::Tensor range = tensor_.narrow(0, first, count);
    if (range.is_cpu()) return fill(MutableBytesOf(range));
    const at::Tensor host = at::empty({count}, range.options().device(at::kCPU));
    DS_RETURN_IF_ERROR(fill(MutableBytesOf(host)));
    range.copy_(host);
    return OkStatus();
  }

 private:
  const at::Tensor tensor_;
};

// Returns a function that takes the values' bytes as the contents of a source's range.
TensorSource::FillBytes FillFrom(const at::Tensor& values) {
  return [values](std::span<std::byte> into) {
    const std::span<const std::byte> from = BytesOf(values);
    std::copy(from.begin(), from.end(), into.begin());
    return OkStatus();
  };
}

class ConvertedSource : public TensorSource {
 public:
  ConvertedSource(std::shared_ptr<TensorSource> source, at::ScalarType dtype)
      : source_(std::move(source)), dtype_(dtype) {}

  std::int64_t count() const override { return source_->count(); }
  at::ScalarType dtype() const override { return dtype_; }

  Status Read(std::int64_t first, std::int64_t count, const TakeBytes& take) override {
    const at::Tensor values = at::empty({count}, source_->dtype());
    DS_RETURN_IF_ERROR(source_->Read(first, count, [&](std::span<const std::byte> bytes) {
      std::copy(bytes.begin(), bytes.end(), MutableBytesOf(values).begin());
      return OkStatus();
    }));
    return take(BytesOf(values.to(dtype_)));
  }

  Status Write(std::int64_t first, std::int64_t count, const FillBytes& fill) override {
    const at::Tensor values = at::empty({count}, dtype_);
    DS_RETURN_IF_ERROR(fill(MutableBytesOf(values)));
    return source_->Write(first, count, FillFrom(values.to(source_->dtype())));
  }

 private:
  const std::shared_ptr<TensorSource> source_;
  const at::ScalarType dtype_;
};

}  // namespace

std::shared_ptr<TensorSource> SourceOf(at::Tensor tensor) {
  return std::make_shared<FullTensor>(std::move(tensor));
}

std::shared_ptr<TensorSource> ConvertSource(std::shared_ptr<TensorSource> source,
                                            at::ScalarType dtype) {
  return std::make_shared<ConvertedSource>(std::move(source), dtype);
}

StatusOr<at::Tensor> ReadAll(TensorSource& source) {
  const at::Tensor all = at::empty({source.count()}, source.dtype());
  DS_RETURN_IF_ERROR(source.Read(0, source.count(), [&](std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), MutableBytesOf(all).begin());
    return OkStatus();
  }));
  return all;
}

Status WriteAll(const at::Tensor& values, TensorSource& source) {
  DS_CHECK(values.dim() == 1 && values.numel() == source.count());
  const at::Tensor converted = values.to(at::kCPU, source.dtype()).contiguous();
  return source.Write(0, source.count(), FillFrom(converted));
}

}  // namespace ds::checkpoint
