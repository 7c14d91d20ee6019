#pragma once

// Errors of the runtime as exceptions of Python.

#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/base/status.h"

namespace ds::python {

// An error status on its way to Python.
class StatusError : public std::runtime_error {
 public:
  explicit StatusError(const Status& status)
      : std::runtime_error(std::string(status.message())), code_(status.code()) {}
  StatusCode code() const { return code_; }

 private:
  StatusCode code_;
};

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}

template <typename T>
T ValueOrThrow(StatusOr<T> result) {
  if (!result.ok()) throw StatusError(result.status());
  return std::move(*result);
}

// Makes the module's functions raise ValueError (kInvalidArgument, kOutOfRange), KeyError
// (kNotFound), NotImplementedError (kUnimplemented), TimeoutError (kDeadlineExceeded),
// torch.distributed.DistNetworkError (kUnavailable: another rank is missing) and else RuntimeError,
// with the status's message; for LibTorch's errors the class that PyTorch raises, such as
// torch.OutOfMemoryError and IndexError, without LibTorch's stack trace. Exceptions of Python code
// pass through.
void RegisterErrors(pybind11::module_& module);

}  // namespace ds::python
