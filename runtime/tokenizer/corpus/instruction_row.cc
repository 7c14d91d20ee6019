#include "runtime/tokenizer/corpus/instruction_row.h"

#include <algorithm>
#include <string_view>

#include "runtime/tokenizer/corpus/arrow_values.h"
#include "runtime/tokenizer/corpus/row_messages.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kAlpacaInput =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n### Instruction:\n";
constexpr const char* kAlpacaPlain =
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n";

std::string TextOrEmpty(const OrderedJson& row, const char* key) {
  const auto found = row.find(key);
  return found == row.end() || !found->is_string() ? std::string() : found->get<std::string>();
}

Status CheckTexts(const OrderedJson& row) {
  for (const char* const key : {"instruction", "input", "output"}) {
    const auto found = row.find(key);
    if (found == row.end() || found->is_string()) continue;
    return InvalidArgumentError(Quoted(key) + " is no text" + AdviseOnArrowTypes(row, {key}));
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> WriteAlpacaPrompt(const OrderedJson& row) {
  for (const char* const key : {"system", "history"}) {
    if (!HasValue(row, key)) continue;
    return InvalidArgumentError("Alpaca's prompt has no place for \"" + std::string(key) +
                                "\": --prompt_style chat writes it by the chat template");
  }
  DS_RETURN_IF_ERROR(CheckTexts(row));
  const std::string instruction = TextOrEmpty(row, "instruction");
  const std::string input = TextOrEmpty(row, "input");
  return (input.empty() ? kAlpacaPlain + instruction
                        : kAlpacaInput + instruction + "\n\n### Input:\n" + input) +
         "\n\n### Response:";
}

StatusOr<ChatRow> ReadInstructionChat(const OrderedJson& row) {
  const OrderedJson history = row.value("history", OrderedJson::array());
  const auto is_turn = [](const OrderedJson& turn) {
    return turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
  };
  if (!history.is_array() || !std::all_of(history.begin(), history.end(), is_turn)) {
    return InvalidArgumentError("\"history\" is no list of pairs of an instruction and its output");
  }
  ChatRow chat;
  const auto add = [&](const char* role, const OrderedJson& content) {
    chat.messages.push_back({{"role", role}, {"content", content}});
    chat.learnt.push_back(std::string_view(role) == "assistant");
  };
  for (const OrderedJson& turn : history) {
    add("user", turn[0]);
    add("assistant", turn[1]);
  }
  DS_RETURN_IF_ERROR(CheckTexts(row));
  const std::string instruction = TextOrEmpty(row, "instruction");
  const std::string input = TextOrEmpty(row, "input");
  const bool both = !instruction.empty() && !input.empty();
  add("user", instruction + (both ? "\n" : "") + input);
  return chat;
}

}  // namespace ds::tokenizer
