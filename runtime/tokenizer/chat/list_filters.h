#pragma once

// The filters that make lists, or something of the elements of one. Pure.

#include <string>

#include "runtime/tokenizer/chat/arguments.h"

namespace ds::tokenizer {

// An unknown name is an error.
StatusOr<Value> ApplyListFilter(const std::string& name, const Value& value,
                                const Arguments& arguments);

}  // namespace ds::tokenizer
