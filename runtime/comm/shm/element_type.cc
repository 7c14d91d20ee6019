#include "runtime/comm/shm/element_type.h"

#include <array>

namespace ds::comm {
namespace {

struct Traits {
  std::string_view name;
  std::size_t bytes;
  bool floating_point;
};

constexpr std::array<Traits, 10> kTraits = {{
    {"float32", 4, true},
    {"float64", 8, true},
    {"bfloat16", 2, true},
    {"float16", 2, true},
    {"int8", 1, false},
    {"uint8", 1, false},
    {"int16", 2, false},
    {"int32", 4, false},
    {"int64", 8, false},
    {"bool", 1, false},
}};

const Traits& Of(ElementType type) { return kTraits[static_cast<std::size_t>(type)]; }

}  // namespace

std::size_t ElementBytes(ElementType type) { return Of(type).bytes; }
std::string_view ElementTypeName(ElementType type) { return Of(type).name; }
bool IsFloatingPoint(ElementType type) { return Of(type).floating_point; }

}  // namespace ds::comm
