#include "runtime/tokenizer/corpus/arrow_values.h"

#include "runtime/base/json_fault.h"
#include "runtime/tokenizer/corpus/row_json.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Returns the text under a key; null where there is none.
const std::string* FindText(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : found->get_ptr<const std::string*>();
}

// Returns the type of an unsupported value; null for other values.
const std::string* FindType(const OrderedJson& row, const std::string& key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_object() || found->size() != 1) return nullptr;
  return FindText(*found, kArrowTypeKey);
}

}  // namespace

Status CheckArrowColumns(const OrderedJson& row) {
  const auto fault = row.find(kArrowFaultKey);
  if (row.size() != 1 || fault == row.end() || !fault->is_object()) return OkStatus();
  const std::string *column = FindText(*fault, "column"), *text = FindText(*fault, "text");
  if (column == nullptr || text == nullptr) return OkStatus();
  const std::string where = "the JSON in the column " + OrderedJson(*column).dump();
  DS_RETURN_IF_ERROR(ParseNested(*text).status().WithContext(where));
  return InvalidArgumentError(where + " is damaged: " + DescribeJsonFault(*text));
}

std::string AdviseOnArrowTypes(const OrderedJson& row, const std::vector<std::string>& keys) {
  std::string advice;
  for (const std::string& key : keys) {
    const std::string* const type = FindType(row, key);
    if (type == nullptr) continue;
    advice += "; the column " + OrderedJson(key).dump() + " has Arrow's type " + *type +
              ", which is no text: write it as string (pyarrow: column.cast(\"string\"))";
  }
  return advice;
}

}  // namespace ds::tokenizer
