#include "runtime/tokenizer/chat/renderer.h"

#include <algorithm>
#include <utility>

namespace ds::tokenizer {
namespace {

Status AtLine(const Status& status, int line) {
  // The innermost line is the most useful one.
  if (status.message().starts_with("line ")) return status;
  return status.WithContext("line " + std::to_string(line));
}

// Builds the `loop` variable of a loop's body.
ValueDict LoopOf(const ValueList& elements, std::size_t index, std::int64_t depth) {
  const auto size = static_cast<std::int64_t>(elements.size());
  const auto at = static_cast<std::int64_t>(index);
  ValueDict loop;
  const auto set = [&](const char* name, Value value) {
    loop.entries.emplace_back(name, std::move(value));
  };
  set("index", Value(at + 1));
  set("index0", Value(at));
  set("revindex", Value(size - at));
  set("revindex0", Value(size - at - 1));
  set("first", Value(at == 0));
  set("last", Value(at + 1 == size));
  set("length", Value(size));
  set("depth", Value(depth));
  set("depth0", Value(depth - 1));
  if (index > 0) set("previtem", elements[index - 1]);
  if (index + 1 < elements.size()) set("nextitem", elements[index + 1]);
  set("cycle", Value(Callable{"loop.cycle", std::make_shared<const Value>(at), nullptr, {}}));
  return loop;
}

}  // namespace

void Scope::Set(const std::string& name, Value value) {
  for (auto& [each, old] : values) {
    if (each == name) {
      old = std::move(value);
      return;
    }
  }
  values.emplace_back(name, std::move(value));
}

std::size_t Scope::CountNames() const {
  std::size_t count = 0;
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    count += scope->values.size();
  }
  return count;
}

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [each, value] : scope->values) {
      if (each == name) return &value;
    }
  }
  return nullptr;
}

Status Renderer::Spend(std::uint64_t bytes) {
  DS_RETURN_IF_ERROR(budget_.SpendStep());
  return budget_.Spend(bytes);
}

Status Renderer::Run(const StatementList& block, const std::shared_ptr<Scope>& scope) {
  DS_ASSIGN_OR_RETURN(const Flow flow, RunBlock(block, scope));
  DS_RETURN_IF_ERROR(BeginTurn(kNoOrigin));
  return flow == Flow::kOn ? OkStatus() : InvalidArgumentError("break and continue need a loop");
}

StatusOr<Renderer::Flow> Renderer::RunBlock(const StatementList& block, const ScopePtr& scope) {
  if (++depth_ > budget_.depth()) {
    return ResourceExhaustedError("the template nests blocks and calls too deep");
  }
  Flow flow = Flow::kOn;
  for (const StatementPtr& statement : block) {
    auto next = RunStatement(*statement, scope);
    if (!next.ok()) return AtLine(next.status(), statement->line);
    flow = *next;
    if (flow != Flow::kOn) break;
  }
  --depth_;
  return flow;
}

StatusOr<Renderer::Flow> Renderer::RunStatement(const Statement& statement, const ScopePtr& scope) {
  DS_RETURN_IF_ERROR(Spend(statement.text.size()));
  switch (statement.kind) {
    case StatementKind::kText:
      *out_ += statement.text;
      return Flow::kOn;
    case StatementKind::kOutput: {
      DS_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value, scope));
      DS_RETURN_IF_ERROR(Spend(value.shape().weight));
      *out_ += value.Str();
      words_ = MergeOrigins(words_, value.origin());
      return Flow::kOn;
    }
    case StatementKind::kIf:
      for (const auto& [condition, body] : statement.branches) {
        DS_ASSIGN_OR_RETURN(const Value value, Evaluate(*condition, scope));
        if (value.Truth()) return RunBlock(body, scope);
      }
      return RunBlock(statement.otherwise, scope);
    case StatementKind::kFor:
      return RunFor(statement, scope);
    case StatementKind::kSet:
    case StatementKind::kSetBlock:
      DS_RETURN_IF_ERROR(RunSet(statement, scope));
      return Flow::kOn;
    case StatementKind::kMacro:
      scope->Set(statement.macro->name,
                 Value(Callable{statement.macro->name, nullptr, statement.macro, scope}));
      return Flow::kOn;
    case StatementKind::kGeneration: {
      const auto begin = static_cast<std::uint32_t>(out_->size());
      DS_ASSIGN_OR_RETURN(const Flow flow, RunBlock(statement.body, scope));
      if (out_ == &full_) generated_.push_back({begin, static_cast<std::uint32_t>(out_->size())});
      return flow;
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

// Returns the elements of the loop. Its condition is evaluated before the first iteration, so that
// loop.length is right.
StatusOr<ValueList> Renderer::SelectElements(const Statement& loop, const ScopePtr& scope) {
  DS_ASSIGN_OR_RETURN(const Value value, Evaluate(*loop.value, scope));
  DS_RETURN_IF_ERROR(Spend(ElementsCost(value)));
  DS_ASSIGN_OR_RETURN(ValueList elements, ElementsOf(value));
  if (loop.condition == nullptr) return elements;
  ValueList kept;
  for (const Value& element : elements) {
    const auto item_scope = std::make_shared<Scope>(Scope{scope, {}});
    DS_RETURN_IF_ERROR(Assign(loop.targets, element, item_scope.get()));
    DS_ASSIGN_OR_RETURN(const Value good, Evaluate(*loop.condition, item_scope));
    if (good.Truth()) kept.push_back(element);
  }
  return kept;
}

StatusOr<Renderer::Flow> Renderer::RunFor(const Statement& loop, const ScopePtr& scope) {
  DS_ASSIGN_OR_RETURN(const ValueList elements, SelectElements(loop, scope));
  if (elements.empty()) return RunBlock(loop.otherwise, scope);
  std::int64_t depth = 1;
  if (const Value* outer = scope->Find("loop"); outer != nullptr && outer->dict() != nullptr) {
    if (const Value* known = outer->dict()->Find(Value("depth")); known != nullptr) {
      depth = static_cast<std::int64_t>(known->number()) + 1;
    }
  }
  const bool outer_by_index = by_index_;
  const Origin outer_message = turn_.message;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    DS_RETURN_IF_ERROR(Spend(sizeof(Scope)));
    by_index_ = elements[i].As<std::int64_t>() != nullptr;
    const Origin message = elements[i].message();
    DS_RETURN_IF_ERROR(BeginTurn(message == kNoOrigin ? outer_message : message));
    const auto item_scope = std::make_shared<Scope>(Scope{scope, {}});
    item_scope->Set("loop", Value(LoopOf(elements, i, depth)));
    DS_RETURN_IF_ERROR(Assign(loop.targets, elements[i], item_scope.get()));
    DS_ASSIGN_OR_RETURN(const Flow flow, RunBlock(loop.body, item_scope));
    if (flow == Flow::kBreak) break;
  }
  by_index_ = outer_by_index;
  DS_RETURN_IF_ERROR(BeginTurn(outer_message));
  return Flow::kOn;
}

// Turns are parts of the final text. The output of a macro or a set block becomes a value, and then
// part of the turn that outputs the value.
Status Renderer::BeginTurn(Origin message) {
  if (out_ != &full_ || message == turn_.message) return OkStatus();
  turn_.span.end = static_cast<std::uint32_t>(full_.size());
  turn_.origin = words_;
  if (turn_.message != kNoOrigin && turn_.span.begin < turn_.span.end) {
    DS_RETURN_IF_ERROR(budget_.Spend(sizeof(ChatTurn)));
    turns_.push_back(turn_);
  }
  turn_ = {message, {turn_.span.end, turn_.span.end}, kNoOrigin};
  words_ = kNoOrigin;
  return OkStatus();
}

Status Renderer::Assign(const std::vector<std::string>& targets, const Value& value, Scope* scope) {
  if (targets.size() == 1) {
    scope->Set(targets[0], value);
    return OkStatus();
  }
  DS_ASSIGN_OR_RETURN(const ValueList elements, ElementsOf(value));
  if (elements.size() != targets.size()) {
    return InvalidArgumentError(std::to_string(elements.size()) + " values for " +
                                std::to_string(targets.size()) + " names");
  }
  for (std::size_t i = 0; i < targets.size(); ++i) scope->Set(targets[i], elements[i]);
  return OkStatus();
}

Status Renderer::RunSet(const Statement& statement, const ScopePtr& scope) {
  if (statement.kind == StatementKind::kSetBlock) {
    DS_ASSIGN_OR_RETURN(Value text,
                        Capture(statement.body, std::make_shared<Scope>(Scope{scope, {}})));
    const auto inner = std::make_shared<Scope>(Scope{scope, {}});
    inner->Set(std::string(kBlockText), std::move(text));
    DS_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value, inner));
    return Assign(statement.targets, value, scope.get());
  }
  DS_ASSIGN_OR_RETURN(Value value, Evaluate(*statement.value, scope));
  // {% for i in range(n) %}{% set message = messages[i] %}
  if (by_index_ && value.message() != kNoOrigin) DS_RETURN_IF_ERROR(BeginTurn(value.message()));
  if (statement.attribute.empty()) return Assign(statement.targets, value, scope.get());
  const Value* found = scope->Find(statement.space);
  const auto* space = found == nullptr ? nullptr : found->As<Value::Namespace>();
  if (space == nullptr) return InvalidArgumentError("'" + statement.space + "' is no namespace");
  if (value.shape().has_namespace) {
    return PermissionDeniedError("a namespace may not hold another one");
  }
  space->values->Set(Value(statement.attribute), std::move(value));
  return OkStatus();
}

StatusOr<Value> Renderer::Capture(const StatementList& block, const ScopePtr& scope) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  const Origin outer_words = std::exchange(words_, kNoOrigin);
  const auto flow = RunBlock(block, scope);
  out_ = outer;
  const Origin words = std::exchange(words_, outer_words);
  if (!flow.ok()) return flow.status();
  return Value(std::move(text)).WithOrigin(words);
}

StatusOr<Value> Renderer::CallMacro(const Callable& callable, const Arguments& arguments) {
  const Macro& macro = *callable.macro;
  const std::shared_ptr<Scope> home = callable.scope.lock();
  if (home == nullptr) return InvalidArgumentError("the macro '" + macro.name + "' is gone");
  if (arguments.positional.size() > macro.parameters.size()) {
    return InvalidArgumentError("macro '" + macro.name + "' takes not more than " +
                                std::to_string(macro.parameters.size()) + " arguments");
  }
  for (const auto& [name, value] : arguments.named) {
    const bool known =
        std::find(macro.parameters.begin(), macro.parameters.end(), name) != macro.parameters.end();
    if (!known) {
      return InvalidArgumentError("macro '" + macro.name + "' takes no argument '" + name + "'");
    }
  }
  const auto scope = std::make_shared<Scope>(Scope{home, {}});
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const std::string& name = macro.parameters[i];
    Value value(Value::Undefined{"parameter '" + name + "' was not provided"});
    if (const Value* given = arguments.Find(i, name)) {
      value = *given;
    } else if (macro.defaults[i] != nullptr) {
      DS_ASSIGN_OR_RETURN(value, Evaluate(*macro.defaults[i], scope));
    }
    scope->Set(name, std::move(value));
  }
  return Capture(macro.body, scope);
}

}  // namespace ds::tokenizer
