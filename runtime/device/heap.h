#pragma once

namespace ds::device {

// From here on memory that the process frees stays with it. What a training step frees (its
// activations, its gradients) the next one takes again, and fresh memory costs a page fault every
// 4 KiB. By default glibc returns large allocations at once, and the heap's end. Does nothing with
// other C libraries. Call once, early.
void KeepFreedMemory();

}  // namespace ds::device
