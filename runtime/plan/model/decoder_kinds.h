#pragma once

// The kinds of parts that a decoder may have (decoder_spec.h).

namespace ds::models {

enum class Activation { kGeluTanh, kGeluErf, kRelu, kSilu };

enum class NormKind {
  kLayer,       // LayerNorm
  kRms,         // x over its root mean square, rounded to x's dtype, times the weight
  kRmsWide,     // rounded behind the weight
  kRmsPlusOne,  // the same, times one plus the weight, which starts at 0
};

// The norms of a layer stand in one of these places; x is what flows through the layers, f
// attention or MLP.
enum class NormPlace {
  kBefore,     // x + f(norm(x))
  kBehind,     // x + norm(f(x))
  kAround,     // x + norm'(f(norm(x)))
  kBehindSum,  // norm(x + f(x))
};

enum class Residual {
  kInTurn,           // the MLP sees what attention has added
  kParallel,         // both see x, each through its norm
  kParallelOneNorm,  // both see x through one norm
};

enum class QkvLayout {
  kApart,         // a weight each
  kConcatenated,  // all queries, all keys, all values
  kByGroup,       // per head of the keys: its queries, its key, its value
  kLatent,        // keys and values widened from one narrow row a token (decoder_attention.h)
};

enum class QueryKeyNorm { kNone, kPerHead, kWhole };

// An expert that all tokens go through joins its result to that of a token's own ones.
enum class SharedExpertMix {
  kAdded,
  kGated,     // added, times a sigmoid of a product
  kWeighted,  // both are weighted, by a softmax of a product (residual experts, arXiv 2201.05596)
};

enum class Positions {
  kNone,
  kLearned,
  kRotary,
  kAlibi,         // arXiv 2108.12409
  kAlibiRounded,  // the same with slopes and products in bf16, and scaled as the scores are
};

// A layer may differ from the others in these.
struct LayerKind {
  bool windowed = false;
  bool rotary = true;
};

}  // namespace ds::models
