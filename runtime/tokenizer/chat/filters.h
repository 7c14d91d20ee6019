#pragma once

// The filters and tests of Jinja that chat templates use, including transformers' tojson. Pure.

#include <string>

#include "runtime/tokenizer/chat/arguments.h"

namespace ds::tokenizer {

// value | name(arguments). An unknown name is an error.
StatusOr<Value> ApplyFilter(const std::string& name, const Value& value,
                            const Arguments& arguments);

// value is name(arguments). An unknown name is an error.
StatusOr<bool> ApplyTest(const std::string& name, const Value& value, const Arguments& arguments);

// Applies a filter that returns a list, or that works on the elements of one. Pure.

// An unknown name is an error.
StatusOr<Value> ApplyListFilter(const std::string& name, const Value& value,
                                const Arguments& arguments);

}  // namespace ds::tokenizer
