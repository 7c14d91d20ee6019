#pragma once

// Transfers of values between host and device within a step, through pinned memory, so that only
// ReadNumbers blocks.
//
// Thread-safe. Errors: c10::Error.

#include <ATen/core/Tensor.h>

#include <vector>

namespace ds::device {

// Returns the values of a contiguous 1-D tensor of doubles: the results of a step. It blocks until
// all work on the current stream of the tensor's device is finished. It is the only function in a
// step that waits for the device; a test on a GPU enforces this (tests/gpu).
std::vector<double> ReadNumbers(const at::Tensor& numbers);

// Returns pinned host memory that receives the values of a device tensor, after the work on the
// device's current stream. Do not read it before that work is finished.
at::Tensor TakeToHost(const at::Tensor& values);

// Returns a copy of `host` on the device, made after the work on its current stream. Returns `host`
// itself if `device` is the CPU.
at::Tensor BringTo(const at::Tensor& host, c10::Device device);

}  // namespace ds::device
