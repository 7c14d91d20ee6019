#pragma once

// Freer is the deleter of a std::unique_ptr to an object of a C library.
//
//     using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;

namespace ds {

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

}  // namespace ds
