#pragma once

#include <string_view>

namespace ds::config {

// Key is the dotted path of a ds_config key. The keys of the registry are constants in keys.h,
// which the build generates from settings.json, so a mistyped key does not compile. A path composed
// at run time must be converted to a Key explicitly, and is looked up then.
class Key : public std::string_view {
 public:
  constexpr Key() = default;
  constexpr explicit Key(std::string_view path) : std::string_view(path) {}

  // Returns true if `path` is below this section: "a.b" has "a.b.c", not "a.bc".
  constexpr bool Has(std::string_view path) const {
    return path.size() > size() && path.starts_with(*this) && path[size()] == '.';
  }
};

}  // namespace ds::config
