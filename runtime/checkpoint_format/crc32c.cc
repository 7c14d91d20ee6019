#include "runtime/checkpoint_format/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#define DS_CRC32C_TARGET __attribute__((target("sse4.2")))
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define DS_CRC32C_TARGET __attribute__((target("+crc")))
#endif

namespace ds::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoint files are little-endian");

using Table = std::array<std::uint32_t, 256>;

constexpr std::uint32_t kPolynomial = 0x82F63B78;

// tables[k][b] is the effect of byte b on the checksum when k more bytes follow it (slicing by
// eight).
constexpr std::array<Table, 8> MakeSlicingTables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr std::array<Table, 8> kSlicing = MakeSlicingTables();

constexpr std::uint32_t StepByte(std::uint32_t state, std::uint8_t byte) {
  return (state >> 8) ^ kSlicing[0][(state ^ byte) & 0xFF];
}

std::uint64_t LoadWord(const std::byte* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// All functions below work on the raw register: the checksum with every bit inverted.
std::uint32_t StepTail(std::uint32_t state, const std::byte* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    state = StepByte(state, std::to_integer<std::uint8_t>(from[i]));
  }
  return state;
}

std::uint32_t RunTables(std::uint32_t state, std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    const std::uint64_t word = LoadWord(at) ^ state;
    state = 0;
    for (int k = 0; k < 8; ++k) state ^= kSlicing[7 - k][(word >> (8 * k)) & 0xFF];
  }
  return StepTail(state, at, left);
}

#if defined(DS_CRC32C_TARGET)

// The instruction has a latency of three cycles and a throughput of one. So three streams of
// kStreamBytes run in parallel and are combined afterwards (M. Adler, crc32c.c).
constexpr std::size_t kStreamBytes = 2048;

// skip[k][b]: byte k of a register holding b, after kStreamBytes zero bytes. The map is linear, so
// the 32 single bits define it.
constexpr std::array<Table, 4> MakeSkipTables() {
  std::array<std::uint32_t, 32> image{};
  for (int bit = 0; bit < 32; ++bit) {
    std::uint32_t state = std::uint32_t{1} << bit;
    for (std::size_t i = 0; i < kStreamBytes; ++i) state = StepByte(state, 0);
    image[bit] = state;
  }
  std::array<Table, 4> skip{};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) skip[k][byte] ^= image[8 * k + bit];
      }
    }
  }
  return skip;
}

constexpr std::array<Table, 4> kSkip = MakeSkipTables();

std::uint32_t SkipStream(std::uint32_t state) {
  return kSkip[0][state & 0xFF] ^ kSkip[1][(state >> 8) & 0xFF] ^ kSkip[2][(state >> 16) & 0xFF] ^
         kSkip[3][state >> 24];
}

#if defined(__x86_64__)
bool AskForInstruction() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_SSE4_2) != 0;
}
// Checked once, because under a hypervisor CPUID is a trap of 5 us or more. Does not use
// __builtin_cpu_supports, because its constructor executes CPUID a dozen times in each program that
// links this.
bool HasInstruction() {
  static const bool has = AskForInstruction();
  return has;
}
DS_CRC32C_TARGET inline std::uint32_t StepWord(std::uint32_t state, std::uint64_t word) {
  return static_cast<std::uint32_t>(__builtin_ia32_crc32di(state, word));
}
#else
bool HasInstruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
DS_CRC32C_TARGET inline std::uint32_t StepWord(std::uint32_t state, std::uint64_t word) {
  return __builtin_aarch64_crc32cx(state, word);
}
#endif

DS_CRC32C_TARGET std::uint32_t RunInstruction(std::uint32_t state,
                                              std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 3 * kStreamBytes; at += 3 * kStreamBytes, left -= 3 * kStreamBytes) {
    std::uint32_t second = 0;
    std::uint32_t third = 0;
    for (std::size_t i = 0; i < kStreamBytes; i += 8) {
      state = StepWord(state, LoadWord(at + i));
      second = StepWord(second, LoadWord(at + kStreamBytes + i));
      third = StepWord(third, LoadWord(at + 2 * kStreamBytes + i));
    }
    state = SkipStream(SkipStream(state) ^ second) ^ third;
  }
  for (; left >= 8; at += 8, left -= 8) state = StepWord(state, LoadWord(at));
  return StepTail(state, at, left);
}

#endif  // DS_CRC32C_TARGET

}  // namespace

std::uint32_t ExtendCrc32cPortably(std::uint32_t crc, std::span<const std::byte> bytes) {
  return ~RunTables(~crc, bytes);
}

std::uint32_t ExtendCrc32c(std::uint32_t crc, std::span<const std::byte> bytes) {
#if defined(DS_CRC32C_TARGET)
  if (HasInstruction()) return ~RunInstruction(~crc, bytes);
#endif
  return ExtendCrc32cPortably(crc, bytes);
}

std::uint32_t Crc32c(std::string_view bytes) {
  return ExtendCrc32c(0, std::as_bytes(std::span(bytes)));
}

}  // namespace ds::checkpoint
