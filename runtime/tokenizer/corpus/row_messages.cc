#include "runtime/tokenizer/corpus/row_messages.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "runtime/tokenizer/corpus/row_json.h"

namespace ds::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Names in data sets for the roles of chat templates.
constexpr std::pair<std::string_view, std::string_view> kRoles[] = {
    {"human", "user"},       {"gpt", "assistant"},  {"chatgpt", "assistant"},
    {"bing", "assistant"},   {"bard", "assistant"}, {"function_call", "assistant"},
    {"observation", "tool"}, {"function", "tool"},  {"function_response", "tool"}};

// Parameters of transformers' apply_chat_template, which are not variables of a template.
constexpr std::string_view kNoVariables[] = {"messages",
                                             "conversation",
                                             "chat_template",
                                             "add_generation_prompt",
                                             "continue_final_message",
                                             "tokenize",
                                             "padding",
                                             "truncation",
                                             "max_length",
                                             "return_tensors",
                                             "return_dict",
                                             "return_assistant_tokens_mask",
                                             "tokenizer_kwargs"};

// Files with columns hold null under keys that other rows have. Nested values are kept: a null in
// the arguments of a call has a meaning.
void DropNulls(OrderedJson* object) {
  if (!object->is_object()) return;
  for (auto it = object->begin(); it != object->end();) {
    it = it->is_null() ? object->erase(it) : std::next(it);
  }
}

// Removes and returns the first value under these names that is not null; null without one.
OrderedJson Take(OrderedJson* message, std::initializer_list<std::string> names) {
  for (const std::string& name : names) {
    const auto found = message->find(name);
    if (name.empty() || found == message->end() || found->is_null()) continue;
    OrderedJson value = std::move(*found);
    message->erase(found);
    return value;
  }
  return {};
}

StatusOr<OrderedJson> ParseText(const OrderedJson& value, const std::string& name) {
  DS_ASSIGN_OR_RETURN(OrderedJson parsed, ParseNested(value.get_ref<const std::string&>()));
  if (parsed.is_discarded()) return InvalidArgumentError(name + " is a text, but no JSON");
  return parsed;
}

// Converts a call to the form that templates read. OpenAI writes its arguments as the JSON text of
// an object.
StatusOr<OrderedJson> ReadFunction(OrderedJson function, const std::string& name) {
  if (!function.is_object() || !function.contains("name")) {
    return InvalidArgumentError(name + " is no object with a \"name\"");
  }
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || !arguments->is_string()) return function;
  DS_ASSIGN_OR_RETURN(OrderedJson parsed, ParseNested(arguments->get_ref<const std::string&>()));
  if (parsed.is_object()) *arguments = std::move(parsed);
  return function;
}

OrderedJson CallOf(OrderedJson function) {
  return {{"type", "function"}, {"function", std::move(function)}};
}

Status ReadToolCalls(OrderedJson* message) {
  const auto calls = message->find("tool_calls");
  if (calls == message->end()) return OkStatus();
  if (!calls->is_array()) return InvalidArgumentError("\"tool_calls\" is no list");
  for (OrderedJson& call : *calls) {
    if (!call.is_object())
      return InvalidArgumentError("\"tool_calls\" has an element of no object");
    for (const char* const key : {"id", "type", "function"}) {
      if (call.contains(key) && call[key].is_null()) call.erase(key);
    }
    // Some data sets write the function's name and arguments without the enclosing object.
    OrderedJson& function = call.contains("function") ? call["function"] : call;
    DS_ASSIGN_OR_RETURN(function, ReadFunction(function, "a function of \"tool_calls\""));
  }
  if (calls->empty()) message->erase(calls);
  return OkStatus();
}

// Moves calls from other positions: the text of a ShareGPT message, or OpenAI's older key.
Status MoveCalls(const std::string& said_role, OrderedJson* content, OrderedJson* message) {
  OrderedJson functions = Take(message, {"function_call"});
  if (said_role == "function_call") {
    if (!content->is_string()) return InvalidArgumentError("the function call is no text");
    DS_ASSIGN_OR_RETURN(functions, ParseText(*content, "the function call"));
    *content = "";
  }
  if (functions.is_null()) return OkStatus();
  if (message->contains("tool_calls")) {
    return InvalidArgumentError(
        "\"function_call\" and \"tool_calls\" mean the same: leave one out");
  }
  if (!functions.is_array()) functions = OrderedJson::array({functions});
  OrderedJson calls = OrderedJson::array();
  for (OrderedJson& each : functions) calls.push_back(CallOf(std::move(each)));
  (*message)["tool_calls"] = std::move(calls);
  return OkStatus();
}

Status CheckContent(const OrderedJson& content) {
  if (content.is_null() || content.is_string()) return OkStatus();
  if (!content.is_array()) return InvalidArgumentError("\"content\" is neither a text nor a list");
  for (const OrderedJson& part : content) {
    const OrderedJson type = part.is_object() ? part.value("type", OrderedJson()) : OrderedJson();
    if (type != "text") {
      return InvalidArgumentError("\"content\" has a part of the type " + type.dump() +
                                  ", and only {\"type\": \"text\", \"text\": ...} is supported");
    }
    if (!part.value("text", OrderedJson()).is_string()) {
      return InvalidArgumentError("\"content\" has a part without \"text\"");
    }
  }
  return OkStatus();
}

// Returns true if the message contributes to the loss.
StatusOr<bool> ReadWeight(OrderedJson* message, bool is_assistant) {
  for (const char* const key : {"train_detail", "training_detail"}) {
    if (Take(message, {key}).is_null()) continue;
    return InvalidArgumentError(Quoted(key) +
                                " learns parts of a message, which is not built: leave it out");
  }
  std::string said_by;
  bool said = is_assistant;
  for (const char* const key : {"weight", "train", "training", "loss", "loss_weight"}) {
    const OrderedJson weight = Take(message, {key});
    if (weight.is_null()) continue;
    const bool is_one = weight == 1 || weight == true;
    if (!is_one && weight != 0 && weight != false) {
      return InvalidArgumentError(Quoted(key) + " is " + weight.dump() + ", and must be 0 or 1");
    }
    if (is_one && !is_assistant) {
      return InvalidArgumentError(
          Quoted(key) + " is 1, but only messages of the assistant are trained on: leave it out");
    }
    if (!said_by.empty() && said != is_one) {
      return InvalidArgumentError(said_by + " and " + Quoted(key) +
                                  " contradict each other: leave one out");
    }
    said = is_one;
    said_by = Quoted(key);
  }
  return said;
}

Status ReadMessage(OrderedJson message, const RowOptions& options, ChatRow* chat) {
  if (!message.is_object()) return InvalidArgumentError("it is no object");
  const std::initializer_list<std::string> content_names{options.content_field, "content", "value"};
  const bool has_content =
      std::any_of(content_names.begin(), content_names.end(),
                  [&](const std::string& name) { return !name.empty() && message.contains(name); });
  OrderedJson content = Take(&message, content_names);
  DropNulls(&message);
  if (content.is_array()) {
    for (OrderedJson& part : content) DropNulls(&part);
  }
  const OrderedJson said = Take(&message, {options.role_field, "role", "from"});
  if (!said.is_string()) {
    return InvalidArgumentError(
        "it has no \"role\" and no \"from\"; name the key with --role_field");
  }
  const auto& said_role = said.get_ref<const std::string&>();
  const auto* const known = std::find_if(std::begin(kRoles), std::end(kRoles),
                                         [&](const auto& each) { return each.first == said_role; });
  const std::string role = known == std::end(kRoles) ? said_role : std::string(known->second);
  DS_ASSIGN_OR_RETURN(const bool in_loss, ReadWeight(&message, role == "assistant"));
  DS_RETURN_IF_ERROR(CheckContent(content));
  DS_RETURN_IF_ERROR(MoveCalls(said_role, &content, &message));
  DS_RETURN_IF_ERROR(ReadToolCalls(&message));
  // If the options name other keys, these two have another meaning.
  message.erase("role");
  message.erase("content");
  OrderedJson read{{"role", role}};
  if (has_content) read["content"] = std::move(content);
  read.update(message);
  chat->messages.push_back(std::move(read));
  chat->in_loss.push_back(in_loss);
  return OkStatus();
}

StatusOr<OrderedJson> ReadTools(OrderedJson tools, const std::string& key) {
  if (tools.is_string()) {
    if (tools.get_ref<const std::string&>().empty()) return OrderedJson();
    DS_ASSIGN_OR_RETURN(tools, ParseText(tools, Quoted(key)));
  }
  if (tools.is_null()) return OrderedJson();
  if (!tools.is_array()) return InvalidArgumentError(Quoted(key) + " is no list of tools");
  for (const OrderedJson& tool : tools) {
    if (tool.is_object()) continue;
    return InvalidArgumentError(Quoted(key) + " has an element that is no object: " + tool.dump());
  }
  return tools.empty() ? OrderedJson()
                       : tools;  // some templates write about tools if the list is empty
}

}  // namespace

std::string Quoted(const std::string& key) { return "\"" + key + "\""; }

bool HasValue(const OrderedJson& row, const std::string& key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return false;
  if (found->is_string()) return !found->get_ref<const std::string&>().empty();
  return !found->is_structured() || !found->empty();
}

Status ReadMessages(const OrderedJson& list, const std::string& key, const RowOptions& options,
                    ChatRow* chat) {
  if (!list.is_array()) return InvalidArgumentError(Quoted(key) + " is no list of messages");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Status read = ReadMessage(list[i], options, chat);
    if (!read.ok()) {
      return read.WithContext(Quoted(key) + ", message " + std::to_string(i + 1));
    }
  }
  return OkStatus();
}

StatusOr<OrderedJson> ReadVariables(const OrderedJson& row, const RowOptions& options) {
  OrderedJson variables = OrderedJson::object();
  const std::string key = options.tools_field.empty() ? "tools" : options.tools_field;
  DS_ASSIGN_OR_RETURN(OrderedJson tools, ReadTools(row.value(key, OrderedJson()), key));
  DS_ASSIGN_OR_RETURN(OrderedJson functions,
                      ReadTools(row.value("functions", OrderedJson()), "functions"));
  if (!functions.is_null()) {
    if (!tools.is_null()) {
      return InvalidArgumentError(Quoted(key) + " and \"functions\" mean the same: leave one out");
    }
    tools = OrderedJson::array();
    for (OrderedJson& each : functions) tools.push_back(CallOf(std::move(each)));
  }
  if (!tools.is_null()) variables["tools"] = std::move(tools);
  OrderedJson more = row.value("chat_template_kwargs", OrderedJson());
  if (more.is_null()) return variables;
  if (!more.is_object()) return InvalidArgumentError("\"chat_template_kwargs\" is no object");
  DropNulls(&more);
  for (const std::string_view name : kNoVariables) {
    if (!more.contains(name)) continue;
    return InvalidArgumentError("\"chat_template_kwargs\" has \"" + std::string(name) +
                                "\", which is no variable of a template");
  }
  variables.update(more);
  return variables;
}

Status CheckToolCalls(const OrderedJson& row, const ChatRow& chat) {
  if (row.value("parallel_tool_calls", OrderedJson()) != false) return OkStatus();
  for (const OrderedJson& message : chat.messages) {
    if (message.value("tool_calls", OrderedJson::array()).size() > 1) {
      return InvalidArgumentError(
          "\"parallel_tool_calls\" is false, and a message has several calls");
    }
  }
  return OkStatus();
}

}  // namespace ds::tokenizer
