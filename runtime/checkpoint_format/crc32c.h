#pragma once

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, RFC 3720 B.4): what guards every byte of a
// checkpoint. Runs at memory speed where the CPU has the instruction (SSE4.2, ARMv8 CRC), and on
// tables elsewhere.
//
// Threads: pure functions.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ds::checkpoint {

// The checksum of the bytes that gave `crc`, followed by `bytes`. Start with 0.
std::uint32_t ExtendCrc32c(std::uint32_t crc, std::span<const std::byte> bytes);

std::uint32_t Crc32c(std::string_view bytes);

// The same by tables alone, whatever the CPU has.
std::uint32_t ExtendCrc32cPortably(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace ds::checkpoint
