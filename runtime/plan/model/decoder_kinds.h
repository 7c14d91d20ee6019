#pragma once

// These enums list the variants of each component of a decoder (decoder_spec.h).

namespace ds::models {

enum class Activation { kGeluTanh, kGeluErf, kRelu, kSilu };

enum class NormKind {
  kLayer,       // LayerNorm
  kRms,         // x over its root mean square, rounded to x's dtype, times the weight
  kRmsWide,     // rounded after the multiplication by the weight
  kRmsPlusOne,  // like kRmsWide, times one plus the weight, which starts at 0
};

// The location of a layer's norms. x is the residual stream, f attention or MLP.
enum class NormPlace {
  kBefore,     // x + f(norm(x))
  kBehind,     // x + norm(f(x))
  kAround,     // x + norm'(f(norm(x)))
  kBehindSum,  // norm(x + f(x))
};

enum class Residual {
  kInTurn,           // the MLP reads the output of attention
  kParallel,         // both read x, each through its own norm
  kParallelOneNorm,  // both read x through one norm
};

enum class QkvLayout {
  kApart,         // one weight each
  kConcatenated,  // all queries, all keys, all values
  kByGroup,       // per key head: its queries, its key, its value
  kLatent,        // K and V are projected up from one narrow row per token (decoder_attention.h)
};

enum class QueryKeyNorm { kNone, kPerHead, kWhole };

// SharedExpertMix combines the output of the shared expert, which receives all tokens, with that of
// the routed experts.
enum class SharedExpertMix {
  kAdded,
  kGated,     // added, times a sigmoid of a linear projection
  kWeighted,  // both weighted by a softmax of a projection (residual experts, arXiv 2201.05596)
};

enum class Positions {
  kNone,
  kLearned,
  kRotary,
  kAlibi,         // arXiv 2108.12409
  kAlibiRounded,  // slopes and products in bf16, and scaled as the scores are
};

// Properties that may differ between layers.
struct LayerKind {
  bool windowed = false;
  bool rotary = true;
};

}  // namespace ds::models
