#pragma once

namespace ds::device {

// Keeps freed memory in the process. Each training step reuses the memory that the previous step
// freed (activations, gradients), and fresh memory costs a page fault every 4 KiB. By default glibc
// returns large allocations and the end of the heap to the kernel at once. Does nothing with other
// C libraries. Call once, early.
void KeepFreedMemory();

}  // namespace ds::device
