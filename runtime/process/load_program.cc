#include "runtime/process/load_program.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

namespace ds {
namespace {

constexpr int kPopulateRead = 22;  // MADV_POPULATE_READ, which older headers lack

struct Pages {
  std::uintptr_t begin;
  std::uintptr_t size;
};

// Lists the parts of an object that come from its file.
int ListPages(dl_phdr_info* object, std::size_t /*size*/, void* list) {
  const auto page = static_cast<std::uintptr_t>(::getpagesize());
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || segment.p_filesz == 0) continue;
    const std::uintptr_t first = object->dlpi_addr + segment.p_vaddr;
    const std::uintptr_t begin = first / page * page;
    const std::uintptr_t end = (first + segment.p_filesz + page - 1) / page * page;
    static_cast<std::vector<Pages>*>(list)->push_back({begin, end - begin});
  }
  return 0;
}

}  // namespace

void LoadProgram() {
  std::vector<Pages> all;
  // It holds a lock that exceptions in other threads need, so nothing is read meanwhile.
  ::dl_iterate_phdr(ListPages, &all);
  for (const Pages& pages : all) {
    // madvise requires a pointer; the system reports a number.
    void* const begin = reinterpret_cast<void*>(pages.begin);  // NOLINT
    // The first page that cannot be read is an error here, and ends the call. Reading it in place
    // would be SIGBUS.
    if (::madvise(begin, pages.size, kPopulateRead) != 0) {
      ::madvise(begin, pages.size, MADV_WILLNEED);
    }
  }
}

}  // namespace ds
