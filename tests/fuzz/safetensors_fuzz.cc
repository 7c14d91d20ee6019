// Feeds arbitrary bytes to ParseSafetensorsLayout. What it accepts lies inside the file, one tensor
// behind the other, each long enough for its shape.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/checkpoint_format/safetensors_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The first two bytes say how many bytes of data there are behind the header.
  if (size < 2) return 0;
  const std::uint64_t data_bytes = data[0] + 256u * data[1];
  const std::string_view header(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::uint64_t data_start = 8 + header.size();
  const auto layout =
      ds::checkpoint::ParseSafetensorsLayout(header, data_start, data_start + data_bytes);
  if (!layout.ok()) {
    DS_CHECK(!layout.status().message().empty());
    return 0;
  }
  std::uint64_t total = 0;
  constexpr std::uint64_t kBits = 8;  // an element of an unknown dtype has one at least
  for (const auto& [name, tensor] : *layout) {
    DS_CHECK(tensor.offset >= data_start && tensor.bytes <= data_bytes);
    DS_CHECK(tensor.offset + tensor.bytes <= data_start + data_bytes);
    DS_CHECK(tensor.Elements() >= 0);
    DS_CHECK(static_cast<std::uint64_t>(tensor.Elements()) <= kBits * tensor.bytes);
    total += tensor.bytes;
  }
  DS_CHECK(total == data_bytes);
  return 0;
}
