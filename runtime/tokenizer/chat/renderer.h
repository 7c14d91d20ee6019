#pragma once

// Renderer runs a template. Execution is bounded: every step and every produced byte is counted,
// and loops and calls have a maximum depth. Beyond a limit the rendering ends with an error.
//
// Not thread-safe.

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tokenizer/chat/arguments.h"
#include "runtime/tokenizer/chat/budget.h"
#include "runtime/tokenizer/chat/syntax.h"
#include "runtime/tokenizer/text/span.h"

namespace ds::tokenizer {

// The names defined in one iteration of a loop or one call of a macro.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> values;

  void Set(const std::string& name, Value value);
  // Counts the names of its parents, too.
  std::size_t CountNames() const;
  // Returns null when neither this scope nor its parents define the name.
  const Value* Find(std::string_view name) const;
};

// A part of the text and its message: the message of the for-loop iteration that output it.
struct ChatTurn {
  Origin message = kNoOrigin;
  Span span;
  // The merged origin of the words in the part: `message`, kNoOrigin, or another value if the part
  // has words of other messages.
  Origin origin = kNoOrigin;
};

class Renderer {
 public:
  // `now` is the time that strftime_now formats.
  Renderer(RenderLimits limits, std::tm now) : budget_(limits), now_(now) {}

  // Renders the block with the names of `scope`, and appends its output to the text.
  Status Run(const StatementList& block, const std::shared_ptr<Scope>& scope);

  const std::string& text() const { return *out_; }
  // Returns the parts of the text that {% generation %} blocks output.
  const std::vector<Span>& generated() const { return generated_; }
  // Returns the parts of the text that loops over the messages output, in the order of the text.
  const std::vector<ChatTurn>& turns() const { return turns_; }

 private:
  enum class Flow { kOn, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  // Spends one step and this many bytes.
  Status Spend(std::uint64_t bytes);
  StatusOr<Flow> RunBlock(const StatementList& block, const ScopePtr& scope);
  StatusOr<Flow> RunStatement(const Statement& statement, const ScopePtr& scope);
  StatusOr<Flow> RunFor(const Statement& loop, const ScopePtr& scope);
  StatusOr<ValueList> SelectElements(const Statement& loop, const ScopePtr& scope);
  // Marks output from here on as belonging to this message.
  Status BeginTurn(Origin message);
  Status Assign(const std::vector<std::string>& targets, const Value& value, Scope* scope);
  Status RunSet(const Statement& statement, const ScopePtr& scope);
  // Runs a block and returns its output instead of appending it to the text.
  StatusOr<Value> Capture(const StatementList& block, const ScopePtr& scope);

  StatusOr<Value> Evaluate(const Expression& expression, const ScopePtr& scope);
  StatusOr<Value> EvaluateKind(const Expression& expression, const ScopePtr& scope);
  StatusOr<Value> EvaluateName(const Expression& expression, const ScopePtr& scope);
  StatusOr<Value> EvaluateOperand(const Expression& expression, const Value& operand,
                                  const ScopePtr& scope);
  StatusOr<Value> EvaluateChild(const Expression& expression, std::size_t child,
                                const ScopePtr& scope);
  StatusOr<Value> EvaluateList(const Expression& expression, const ScopePtr& scope);
  StatusOr<Value> EvaluateDict(const Expression& expression, const ScopePtr& scope);
  StatusOr<Value> EvaluateSlice(const Expression& expression, const ScopePtr& scope);
  StatusOr<Value> EvaluateBinary(const Expression& expression, const ScopePtr& scope);
  StatusOr<Value> EvaluateCondition(const Expression& expression, const ScopePtr& scope);
  StatusOr<Value> EvaluateCall(const Expression& call, const ScopePtr& scope);
  StatusOr<Arguments> EvaluateArguments(const Expression& expression, const ScopePtr& scope);
  StatusOr<Value> Compute(const std::string& name, const Value& left, const Value& right);
  StatusOr<Value> CallFunction(const std::string& name, const Arguments& arguments);
  StatusOr<Value> CallMacro(const Callable& callable, const Arguments& arguments);

  Budget budget_;
  const std::tm now_;
  int depth_ = 0;        // of blocks
  int expressions_ = 0;  // nesting depth of expressions being evaluated
  std::string full_;
  std::string* out_ = &full_;
  std::vector<Span> generated_;
  std::vector<ChatTurn> turns_;
  ChatTurn turn_;             // the current turn; its span ends at the end of the text
  Origin words_ = kNoOrigin;  // the origin of the output since the turn or capture began
  bool by_index_ = false;  // the innermost loop runs over numbers, which may be indices of messages
};

}  // namespace ds::tokenizer
