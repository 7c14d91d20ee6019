#pragma once

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, RFC 3720 B.4) protects every byte of a
// checkpoint. It runs at memory speed on CPUs with the instruction (SSE4.2, ARMv8 CRC), and uses
// tables elsewhere.
//
// Pure functions; thread-safe.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ds::checkpoint {

// Extends a checksum: returns the CRC of the bytes covered by `crc` followed by `bytes`. Start with
// 0.
std::uint32_t ExtendCrc32c(std::uint32_t crc, std::span<const std::byte> bytes);

std::uint32_t Crc32c(std::string_view bytes);

// Computes the same with tables only, on any CPU.
std::uint32_t ExtendCrc32cPortably(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace ds::checkpoint
