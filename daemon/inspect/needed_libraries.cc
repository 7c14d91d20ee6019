#include "daemon/inspect/needed_libraries.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "runtime/base/unique_fd.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

// A file mapped for reading. Its views are bounds-checked.
class MappedFile {
 public:
  static StatusOr<MappedFile> Open(const fs::path& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return ErrnoError(errno, path.string());
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return ErrnoError(errno, path.string());
    const auto size = static_cast<std::size_t>(info.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return ErrnoError(errno, path.string());
    return MappedFile(static_cast<const char*>(data), size);
  }
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
  }

  template <typename T>
  std::optional<T> Read(std::uint64_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (offset > size_ || size_ - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, data_ + offset, sizeof(T));
    return value;
  }

  // Returns the text from `offset` to its NUL, or nothing if it exceeds the file.
  std::optional<std::string> ReadText(std::uint64_t offset) const {
    if (offset >= size_) return std::nullopt;
    const void* end = std::memchr(data_ + offset, '\0', size_ - offset);
    if (end == nullptr) return std::nullopt;
    return std::string(data_ + offset, static_cast<const char*>(end));
  }

 private:
  MappedFile(const char* data, std::size_t size) : data_(data), size_(size) {}
  const char* data_;
  std::size_t size_;
};

struct DynamicSection {
  std::vector<std::string> needed;
  std::string search_path;
};

std::vector<Elf64_Phdr> ReadProgramHeaders(const MappedFile& file, const Elf64_Ehdr& header) {
  std::vector<Elf64_Phdr> headers;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto entry =
        file.Read<Elf64_Phdr>(header.e_phoff + std::uint64_t{i} * sizeof(Elf64_Phdr));
    if (entry) headers.push_back(*entry);
  }
  return headers;
}

// Returns the file offset of the byte that is loaded at `address`.
std::optional<std::uint64_t> FileOffset(const std::vector<Elf64_Phdr>& headers,
                                        std::uint64_t address) {
  for (const Elf64_Phdr& segment : headers) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  return std::nullopt;
}

std::vector<Elf64_Dyn> DynamicEntries(const MappedFile& file,
                                      const std::vector<Elf64_Phdr>& headers) {
  std::vector<Elf64_Dyn> entries;
  for (const Elf64_Phdr& segment : headers) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= segment.p_filesz;
         at += sizeof(Elf64_Dyn)) {
      const auto entry = file.Read<Elf64_Dyn>(segment.p_offset + at);
      if (!entry || entry->d_tag == DT_NULL) break;
      entries.push_back(*entry);
    }
  }
  return entries;
}

StatusOr<DynamicSection> ReadDynamicSection(const MappedFile& file, const std::string& name) {
  const auto header = file.Read<Elf64_Ehdr>(0);
  const unsigned char byte_order = __BYTE_ORDER == __LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB;
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != byte_order) {
    return InvalidArgumentError(name + ": not a 64-bit ELF program of this machine");
  }
  const std::vector<Elf64_Phdr> headers = ReadProgramHeaders(file, *header);
  const std::vector<Elf64_Dyn> entries = DynamicEntries(file, headers);
  std::optional<std::uint64_t> names;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_STRTAB) names = FileOffset(headers, entry.d_un.d_ptr);
  }
  DynamicSection section;
  if (!names) return section;  // a static program
  for (const Elf64_Dyn& entry : entries) {
    const std::optional<std::string> text = file.ReadText(*names + entry.d_un.d_val);
    if (!text) continue;
    if (entry.d_tag == DT_NEEDED) section.needed.push_back(*text);
    if (entry.d_tag == DT_RUNPATH || entry.d_tag == DT_RPATH) section.search_path = *text;
  }
  return section;
}

std::vector<fs::path> ListFolders(std::string_view search_path, const fs::path& origin) {
  std::vector<fs::path> folders;
  for (std::size_t start = 0; start < search_path.size();) {
    const std::size_t end = std::min(search_path.find(':', start), search_path.size());
    std::string folder(search_path.substr(start, end - start));
    for (const std::string_view token : {"$ORIGIN", "${ORIGIN}"}) {
      const std::size_t at = folder.find(token);
      if (at != std::string::npos) folder.replace(at, token.size(), origin.string());
    }
    if (!folder.empty()) folders.emplace_back(folder);
    start = end + 1;
  }
  return folders;
}

}  // namespace

StatusOr<std::vector<std::string>> FindMissingLibraries(const fs::path& program,
                                                        std::span<const std::string_view> prefixes,
                                                        std::string_view library_path) {
  DS_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(program));
  DS_ASSIGN_OR_RETURN(const DynamicSection section, ReadDynamicSection(file, program.string()));
  std::vector<fs::path> folders = ListFolders(section.search_path, program.parent_path());
  for (const fs::path& folder : ListFolders(library_path, program.parent_path())) {
    folders.push_back(folder);
  }
  std::vector<std::string> missing;
  for (const std::string& name : section.needed) {
    const bool asked = std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
      return name.starts_with(prefix);
    });
    const bool found = std::any_of(folders.begin(), folders.end(), [&](const fs::path& folder) {
      std::error_code ignored;
      return fs::exists(folder / name, ignored);
    });
    if (asked && !found) missing.push_back(name);
  }
  return missing;
}

}  // namespace ds::daemon
