#pragma once

// Values go between the host and a device in the midst of a step by memory that the device sees, so
// that nobody waits who need not.
//
// Threads: any. Errors: c10::Error.

#include <ATen/core/Tensor.h>

#include <vector>

namespace ds::device {

// Returns what a step has come to, the values of a contiguous 1-D tensor of doubles. The one place
// where a step waits for its device: behind all that was issued to its current stream. Everything
// else that a step asks a GPU for it asks without waiting, to which a test on one holds it
// (tests/gpu).
std::vector<double> ReadNumbers(const at::Tensor& numbers);

// Returns pinned memory of the host that gets the values of a device's tensor, behind what its
// current stream holds: not to be read before that.
at::Tensor TakeToHost(const at::Tensor& values);

// Returns what the host has made, on the device, behind what its current stream holds; the tensor
// itself where that is the CPU.
at::Tensor BringTo(const at::Tensor& host, c10::Device device);

}  // namespace ds::device
