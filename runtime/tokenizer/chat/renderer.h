#pragma once

// Renderer: runs a template. Bounded: every step and every byte that is made is counted, loops and
// calls are nested to a depth, and beyond a limit the rendering ends with an error.
//
// Threads: one at a time.

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

// Names of a part of the template: a loop's turn, a macro's call.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> values;

  void Set(const std::string& name, Value value);
  // Counts those of its parents, too.
  std::size_t CountNames() const;
  // Null when neither it nor its parents know the name.
  const Value* Find(std::string_view name) const;
};

// A part of the text, and the message of it: the one in whose turn of a for loop it was put out.
struct ChatTurn {
  Origin message = kNoOrigin;
  Span span;
  Origin origin = kNoOrigin;  // of the words in it: this message's, kNoOrigin, or of others as well
};

class Renderer {
 public:
  // `now` is what strftime_now formats.
  Renderer(RenderLimits limits, std::tm now) : budget_(limits), now_(now) {}

  // Puts out what the template says with the names of `scope`.
  Status Run(const Block& block, const std::shared_ptr<Scope>& scope);

  const std::string& text() const { return *out_; }
  // The parts of the text that {% generation %} blocks have put out.
  const std::vector<Span>& generated() const { return generated_; }
  // The parts of the text that loops over the messages have put out, in the order of the text.
  const std::vector<ChatTurn>& turns() const { return turns_; }

 private:
  enum class Flow { kOn, kBreak, kContinue };
  using ScopePtr = std::shared_ptr<Scope>;

  // A step, and so many bytes.
  Status Spend(std::uint64_t bytes);
  StatusOr<Flow> RunBlock(const Block& block, const ScopePtr& scope);
  StatusOr<Flow> RunStatement(const Statement& statement, const ScopePtr& scope);
  StatusOr<Flow> RunFor(const Statement& loop, const ScopePtr& scope);
  StatusOr<ValueList> SelectElements(const Statement& loop, const ScopePtr& scope);
  // Output from here on is of this message.
  Status BeginTurn(Origin message);
  Status Assign(const std::vector<std::string>& targets, const Value& value, Scope* scope);
  Status RunSet(const Statement& statement, const ScopePtr& scope);
  // Runs a block and returns what it puts out, in place of putting it out.
  StatusOr<Value> Capture(const Block& block, const ScopePtr& scope);

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
  int expressions_ = 0;  // that are being computed, one inside of the other
  std::string whole_;
  std::string* out_ = &whole_;
  std::vector<Span> generated_;
  std::vector<ChatTurn> turns_;
  ChatTurn turn_;             // the one that is being put out; its span ends where the text does
  Origin words_ = kNoOrigin;  // the origin of the output since the turn or capture began
  bool by_index_ = false;  // the innermost loop goes over numbers, which may be indices of messages
};

}  // namespace ds::tokenizer
