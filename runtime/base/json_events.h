#pragma once

// JsonEvents is a SAX observer that accepts every event and stops at an error. Subclasses override
// the events they need, to search a JSON text without building its value.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace ds {

// `Json` is nlohmann::json or nlohmann::ordered_json.
template <typename Json>
class JsonEvents : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(typename Json::number_integer_t /*value*/) override { return true; }
  bool number_unsigned(typename Json::number_unsigned_t /*value*/) override { return true; }
  bool number_float(typename Json::number_float_t /*value*/,
                    const typename Json::string_t& /*text*/) override {
    return true;
  }
  bool string(typename Json::string_t& /*value*/) override { return true; }
  bool binary(typename Json::binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*size*/) override { return true; }
  bool key(typename Json::string_t& /*name*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*size*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }
};

}  // namespace ds
