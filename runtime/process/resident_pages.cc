#include "runtime/process/resident_pages.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace ds {
namespace {

// Code is never written to, so dropping its pages loses nothing; data segments hold relocations.
bool IsCode(const ElfW(Phdr) & segment) {
  return segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 &&
         (segment.p_flags & PF_W) == 0;
}

int ReleaseCode(dl_phdr_info* object, std::size_t /*size*/, void* /*unused*/) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (!IsCode(segment)) continue;
    const std::uintptr_t begin = (object->dlpi_addr + segment.p_vaddr) & ~(page - 1);
    const std::uintptr_t end = object->dlpi_addr + segment.p_vaddr + segment.p_memsz;
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return 1;  // the first object is the program itself; libraries are shared with others
}

}  // namespace

void ReleaseStartPages() { ::dl_iterate_phdr(ReleaseCode, nullptr); }

}  // namespace ds
