#include "runtime/device/heap.h"

#include <malloc.h>

namespace ds::device {

void KeepFreedMemory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
#endif
}

}  // namespace ds::device
