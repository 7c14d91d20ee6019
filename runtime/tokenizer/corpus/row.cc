#include "runtime/tokenizer/corpus/row.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/tokenizer/corpus/arrow_values.h"
#include "runtime/tokenizer/corpus/row_json.h"
#include "runtime/tokenizer/corpus/row_messages.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Rows with "instruction", "input" and "output", Alpaca's format, are read as a text prompt or as a
// conversation.

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

// Writes Stanford Alpaca's prompt, with or without an input. Rejects keys that the prompt cannot
// hold.
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

// Returns the turns of "history", then the instruction and, on lines of its own, the input, as
// LLaMA-Factory does. The answers of the history contribute to the loss.
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
    chat.in_loss.push_back(std::string_view(role) == "assistant");
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

constexpr const char* kFormats =
    "rows are read that have \"messages\", \"conversations\", \"prompt\" with \"completion\", "
    "\"chosen\" with \"rejected\", \"text\", or \"instruction\" with \"output\"; other names are "
    "given with --messages_field, --prompt_field and --completion_field, or --text_field (dsrun "
    "help rows)";

// Keys that other trainers read and that are not supported here.
constexpr const char* kRefusedKeys[] = {"image",       "images", "video",     "videos",
                                        "audio",       "audios", "input_ids", "preferred_output",
                                        "mask_history"};

// Returns the text under a name; null when there is none.
const std::string* TextUnder(const OrderedJson& row, const std::string& name) {
  const auto found = row.find(name);
  return found == row.end() ? nullptr : found->get_ptr<const std::string*>();
}

// Returns the length of the common prefix of two texts, up to a full word and never within a
// character. A blank before the answers belongs to the answers, as in TRL's extract_prompt.
std::size_t CountShared(const std::string& a, const std::string& b) {
  auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  const auto is_inside = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
  };
  while (end != a.begin() && end != a.end() && is_inside(*end)) --end;
  if (end != a.begin() && *std::prev(end) == ' ') --end;
  return static_cast<std::size_t>(end - a.begin());
}

// Reads one row.
class RowReader {
 public:
  RowReader(OrderedJson row, const RowOptions& options, bool has_template)
      : row_(std::move(row)), options_(options), has_template_(has_template) {
    for (auto it = row_.begin(); it != row_.end();) {
      it = it->is_null() ? row_.erase(it) : std::next(it);
    }
  }

  StatusOr<DataRow> Read() const;
  StatusOr<DataRow> ReadPrompt() const;

 private:
  bool Has(const std::string& key) const { return row_.contains(key); }
  bool HasInstruction() const { return Has("instruction") && Has("output"); }
  bool NamesText() const { return !options_.text_field.empty(); }
  bool NamesMessages() const { return !options_.messages_field.empty(); }
  bool NamesPrompt() const {
    return !options_.prompt_field.empty() || !options_.completion_field.empty();
  }
  std::string PromptKey() const {
    return options_.prompt_field.empty() ? "prompt" : options_.prompt_field;
  }
  std::string CompletionKey() const {
    return options_.completion_field.empty() ? "completion" : options_.completion_field;
  }

  StatusOr<DataRow> ReadFormat() const;
  StatusOr<DataRow> ReadText(const std::string& key) const;
  StatusOr<DataRow> ReadCompletion() const;
  StatusOr<DataRow> ReadConversation(const std::string& key) const;
  StatusOr<DataRow> ReadChosen() const;
  StatusOr<DataRow> ReadInstruction() const;
  // Fills in the variables and the "system" message, and checks the calls.
  StatusOr<DataRow> FinishChat(ChatRow chat) const;
  Status AddSystem(ChatRow* chat) const;
  StatusOr<std::string> FindConversation() const;
  Status RefuseKeys() const;
  // Returns false if the row's label marks a bad answer.
  StatusOr<bool> IsInLoss(const DataRow& row) const;
  // Rejects keys that have a meaning for a conversation but not for a text.
  Status RefuseChatKeys(const std::string& format) const;
  bool WritesChat() const {
    return options_.prompt_style.empty() ? has_template_ : options_.prompt_style == "chat";
  }
  Status Unknown() const;
  // Returns the advice to add to an error where values have Arrow types.
  std::string OnTypes(const std::vector<std::string>& keys) const {
    return AdviseOnArrowTypes(row_, keys);
  }

  OrderedJson row_;
  const RowOptions& options_;
  const bool has_template_;
};

Status RowReader::Unknown() const {
  std::string found;
  std::vector<std::string> keys;
  for (const auto& [key, value] : row_.items()) {
    keys.push_back(key);
    found += (found.empty() ? "" : ", ") + Quoted(key) + (HasValue(row_, key) ? "" : " (empty)");
  }
  return InvalidArgumentError("the row has " + (found.empty() ? "no values" : found) + ", and " +
                              kFormats + OnTypes(keys));
}

Status RowReader::RefuseKeys() const {
  for (const char* const key : kRefusedKeys) {
    if (!HasValue(row_, key)) continue;
    return InvalidArgumentError("the row has " + Quoted(key) +
                                ", which is not read: leave the key out, or name the text with "
                                "--text_field");
  }
  return OkStatus();
}

StatusOr<DataRow> RowReader::Read() const {
  if (NamesText()) return ReadText(options_.text_field);
  DS_RETURN_IF_ERROR(RefuseKeys());
  DS_ASSIGN_OR_RETURN(DataRow row, ReadFormat());
  DS_ASSIGN_OR_RETURN(const bool in_loss, IsInLoss(row));
  return in_loss ? std::move(row) : DataRow(RejectedRow{});
}

// Of several formats, selects the one that TRL selects: the text before its instruction.
StatusOr<DataRow> RowReader::ReadFormat() const {
  if (NamesMessages()) return ReadConversation(options_.messages_field);
  if (NamesPrompt()) return ReadCompletion();
  if (Has("prompt") && Has("completion")) return ReadCompletion();
  DS_ASSIGN_OR_RETURN(const std::string conversation, FindConversation());
  if (!conversation.empty()) return ReadConversation(conversation);
  if (Has("chosen") && Has("rejected")) return ReadChosen();
  if (HasInstruction() && (!options_.prompt_style.empty() || !Has("text"))) {
    return ReadInstruction();
  }
  return ReadText("text");
}

StatusOr<std::string> RowReader::FindConversation() const {
  const bool has_messages = HasValue(row_, "messages");
  const bool has_conversations = HasValue(row_, "conversations");
  if (has_messages && has_conversations) {
    return InvalidArgumentError(
        "the row has \"messages\" and \"conversations\": name one with --messages_field");
  }
  return std::string(has_messages ? "messages" : has_conversations ? "conversations" : "");
}

// Reads the label of a row of TRL's KTO and LLaMA-Factory's. A label of a text is a class. If the
// options name the keys, a label that is neither true nor false has another meaning.
StatusOr<bool> RowReader::IsInLoss(const DataRow& row) const {
  if (std::holds_alternative<TextRow>(row)) return true;
  const bool names_keys = NamesPrompt() || NamesMessages();
  for (const char* const key : {"label", "kto_tag"}) {
    const OrderedJson label = row_.value(key, OrderedJson(true));
    if (label == true || (!names_keys && label == 1)) continue;
    if (label == false || (!names_keys && label == 0)) return false;
    if (names_keys) continue;
    return InvalidArgumentError(Quoted(key) + " is " + label.dump() +
                                ", and must be true or false (whether to train on the answer); to "
                                "train on all, leave the key out, or name the others with "
                                "--messages_field, or --prompt_field and --completion_field");
  }
  return true;
}

StatusOr<DataRow> RowReader::ReadText(const std::string& key) const {
  if (const std::string* text = TextUnder(row_, key)) return DataRow(TextRow{*text});
  if (NamesText()) {
    return InvalidArgumentError("there is no text under " + Quoted(key) + " (--text_field)" +
                                OnTypes({key}));
  }
  return Unknown();
}

Status RowReader::RefuseChatKeys(const std::string& format) const {
  if (NamesPrompt()) return OkStatus();
  for (const char* const key : {"system", "tools", "functions", "chat_template_kwargs"}) {
    if (!HasValue(row_, key)) continue;
    return InvalidArgumentError(
        Quoted(key) + " belongs to a conversation, but " + format +
        " are texts: write them as lists of messages, or name them with --prompt_field and "
        "--completion_field to leave " +
        Quoted(key) + " out");
  }
  return OkStatus();
}

StatusOr<DataRow> RowReader::ReadCompletion() const {
  const std::string prompt_key = PromptKey(), completion_key = CompletionKey();
  const OrderedJson prompt = row_.value(prompt_key, OrderedJson());
  const OrderedJson completion = row_.value(completion_key, OrderedJson());
  const std::string both = Quoted(prompt_key) + " and " + Quoted(completion_key);
  if (prompt.is_string() && completion.is_string()) {
    DS_RETURN_IF_ERROR(RefuseChatKeys(both));
    return DataRow(CompletionRow{prompt.get<std::string>(), completion.get<std::string>()});
  }
  if (!prompt.is_array() || !completion.is_array()) {
    return InvalidArgumentError(both + " must be two texts, or two lists of messages" +
                                OnTypes({prompt_key, completion_key}));
  }
  ChatRow chat;
  DS_RETURN_IF_ERROR(ReadMessages(prompt, prompt_key, options_, &chat));
  const std::size_t said = chat.messages.size();
  DS_RETURN_IF_ERROR(ReadMessages(completion, completion_key, options_, &chat));
  chat.prompt_messages = said;
  for (std::size_t i = said; i < chat.messages.size(); ++i) {
    if (chat.messages[i]["role"] != "assistant" || chat.in_loss[i]) continue;
    return InvalidArgumentError("a message of " + Quoted(completion_key) +
                                " has the weight 0, but completions are always trained on in full: "
                                "write both lists as one under \"messages\"");
  }
  return FinishChat(std::move(chat));
}

StatusOr<DataRow> RowReader::ReadConversation(const std::string& key) const {
  ChatRow chat;
  DS_RETURN_IF_ERROR(ReadMessages(row_.value(key, OrderedJson()), key, options_, &chat));
  // LLaMA-Factory's preferences: two answers to the conversation.
  const OrderedJson chosen = row_.value("chosen", OrderedJson());
  if (chosen.is_object() && Has("rejected")) {
    std::fill(chat.in_loss.begin(), chat.in_loss.end(), false);
    DS_RETURN_IF_ERROR(ReadMessages(OrderedJson::array({chosen}), "chosen", options_, &chat));
  }
  return FinishChat(std::move(chat));
}

StatusOr<DataRow> RowReader::ReadChosen() const {
  const OrderedJson &chosen = row_["chosen"], &rejected = row_["rejected"];
  const OrderedJson prompt = row_.value("prompt", OrderedJson());
  const auto all = [&](auto is) {
    return is(chosen) && is(rejected) && (prompt.is_null() || is(prompt));
  };
  if (all([](const OrderedJson& each) { return each.is_string(); })) {
    DS_RETURN_IF_ERROR(RefuseChatKeys("\"chosen\" and \"rejected\""));
    const auto& text = chosen.get_ref<const std::string&>();
    if (prompt.is_string()) return DataRow(CompletionRow{prompt.get<std::string>(), text});
    const std::size_t shared = CountShared(text, rejected.get_ref<const std::string&>());
    return DataRow(CompletionRow{text.substr(0, shared), text.substr(shared)});
  }
  if (!all([](const OrderedJson& each) { return each.is_array(); })) {
    return InvalidArgumentError(
        "\"chosen\", \"rejected\" and \"prompt\", if there is one, must all be texts, or all lists "
        "of messages" +
        OnTypes({"chosen", "rejected", "prompt"}));
  }
  ChatRow chat;
  if (prompt.is_array()) DS_RETURN_IF_ERROR(ReadMessages(prompt, "prompt", options_, &chat));
  const auto shared = std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end());
  const auto said =
      prompt.is_array() ? prompt.size() : static_cast<std::size_t>(shared.first - chosen.begin());
  DS_RETURN_IF_ERROR(ReadMessages(chosen, "chosen", options_, &chat));
  std::fill_n(chat.in_loss.begin(), said, false);
  return FinishChat(std::move(chat));
}

StatusOr<DataRow> RowReader::ReadInstruction() const {
  const std::string* const output = TextUnder(row_, "output");
  if (output == nullptr) {
    return InvalidArgumentError("\"output\" is no text" + OnTypes({"output"}));
  }
  if (!WritesChat()) {
    DS_RETURN_IF_ERROR(RefuseChatKeys("\"instruction\" and \"output\""));
    DS_ASSIGN_OR_RETURN(std::string prompt, WriteAlpacaPrompt(row_));
    return DataRow(CompletionRow{std::move(prompt), *output});
  }
  DS_ASSIGN_OR_RETURN(ChatRow chat, ReadInstructionChat(row_));
  chat.messages.push_back({{"role", "assistant"}, {"content", *output}});
  chat.in_loss.push_back(true);
  return FinishChat(std::move(chat));
}

Status RowReader::AddSystem(ChatRow* chat) const {
  if (!HasValue(row_, "system")) return OkStatus();
  const OrderedJson& system = row_["system"];
  if (!system.is_string()) return InvalidArgumentError("\"system\" is no text");
  const bool has_one = !chat->messages.empty() && chat->messages[0]["role"] == "system";
  if (has_one && chat->messages[0].value("content", OrderedJson()) == system) return OkStatus();
  if (has_one) {
    return InvalidArgumentError(
        "\"system\" and the conversation's system message differ: leave one out");
  }
  chat->messages.insert(chat->messages.begin(),
                        OrderedJson{{"role", "system"}, {"content", system}});
  chat->in_loss.insert(chat->in_loss.begin(), false);
  if (chat->prompt_messages) ++*chat->prompt_messages;
  return OkStatus();
}

StatusOr<DataRow> RowReader::FinishChat(ChatRow chat) const {
  DS_RETURN_IF_ERROR(AddSystem(&chat));
  DS_RETURN_IF_ERROR(CheckToolCalls(row_, chat));
  DS_ASSIGN_OR_RETURN(chat.variables, ReadVariables(row_, options_));
  return DataRow(std::move(chat));
}

StatusOr<DataRow> RowReader::ReadPrompt() const {
  if (NamesText()) return ReadText(options_.text_field);
  DS_RETURN_IF_ERROR(RefuseKeys());
  if (!NamesPrompt()) {
    DS_ASSIGN_OR_RETURN(std::string key, FindConversation());
    if (NamesMessages()) key = options_.messages_field;
    if (!key.empty()) return ReadConversation(key);
  }
  const auto prompt = row_.find(PromptKey());
  if (prompt != row_.end() && prompt->is_string()) {
    DS_RETURN_IF_ERROR(RefuseChatKeys(Quoted(PromptKey())));
    return DataRow(TextRow{prompt->get<std::string>()});
  }
  if (prompt != row_.end()) {
    ChatRow chat;
    DS_RETURN_IF_ERROR(ReadMessages(*prompt, PromptKey(), options_, &chat));
    return FinishChat(std::move(chat));
  }
  if (!Has("instruction")) {
    return InvalidArgumentError(
        "there is neither a text under \"prompt\" nor \"messages\", \"conversations\" or "
        "\"instruction\"");
  }
  if (WritesChat()) {
    DS_ASSIGN_OR_RETURN(ChatRow chat, ReadInstructionChat(row_));
    return FinishChat(std::move(chat));
  }
  DS_ASSIGN_OR_RETURN(std::string written, WriteAlpacaPrompt(row_));
  return DataRow(TextRow{std::move(written)});
}

StatusOr<OrderedJson> ParseRow(std::string_view line) {
  // No format reads a number directly under a key of the row.
  DS_ASSIGN_OR_RETURN(OrderedJson row, ParseNested(line, /*exact_depth=*/2));
  if (row.is_object()) {
    DS_RETURN_IF_ERROR(CheckArrowColumns(row));
    return row;
  }
  DS_RETURN_IF_ERROR(CheckRow(line));
  return InvalidArgumentError("the row is no JSON object");
}

}  // namespace

StatusOr<DataRow> ReadRow(std::string_view line, const RowOptions& options, bool has_template) {
  DS_ASSIGN_OR_RETURN(OrderedJson row, ParseRow(line));
  return RowReader(std::move(row), options, has_template).Read();
}

StatusOr<DataRow> ReadPromptRow(std::string_view line, const RowOptions& options,
                                bool has_template) {
  DS_ASSIGN_OR_RETURN(OrderedJson row, ParseRow(line));
  return RowReader(std::move(row), options, has_template).ReadPrompt();
}

}  // namespace ds::tokenizer
