#pragma once

// Storage guards: a storage whose memory has been taken away throws an error when one of its
// tensors is read. Without a guard the read would dereference a null pointer and end the process,
// for example after a Python script has kept an alias of a parameter (detach, state_dict).
//
// Threads: one thread at a time.

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <string>

namespace ds::zero {

// Takes the memory out of the storage and returns it. Until PutMemory, reading a tensor of the
// storage throws c10::Error with the text; the storage object and its tensors stay valid.
at::DataPtr TakeMemory(const at::Storage& storage, const std::string& error);

// Gives the storage memory of `bytes` bytes, and ends the effect of TakeMemory.
void PutMemory(const at::Storage& storage, at::DataPtr memory, std::int64_t bytes);

// Returns a storage of its own that never has memory, for a tensor to wait with. Its size is
// nominal: with less, views of the tensor would fail without the text.
at::Storage MakeGuard(const std::string& error, std::int64_t bytes, c10::Device device);
// Replaces the text of MakeGuard.
void SetGuardError(const at::Storage& guard, const std::string& error);
bool IsGuard(const at::Storage& storage);

}  // namespace ds::zero
