#pragma once

#include <string_view>

namespace ds::config {

// The dotted path of a ds_config key. The keys of the registry are constants in keys.h, which the
// build generates from settings.json: a mistyped one does not compile. A path that is put together
// while the program runs has to be made a Key in so many words, and is looked up then.
class Key : public std::string_view {
 public:
  constexpr Key() = default;
  constexpr explicit Key(std::string_view path) : std::string_view(path) {}

  // Tells whether this is a section that `path` lies below: "a.b" has "a.b.c", not "a.bc".
  constexpr bool Has(std::string_view path) const {
    return path.size() > size() && path.starts_with(*this) && path[size()] == '.';
  }
};

}  // namespace ds::config
