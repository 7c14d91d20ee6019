#pragma once

// Which parameters' gradients go between ranks in a way of their own, by the modules that have
// registered them.

#include <string>
#include <vector>

#include "runtime/models/block.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::engine {

// torch_autocast.lower_precision_safe_modules: in `dtype`, those of modules of these classes, by
// PyTorch's names. Embedding tables are no such module's, whatever head reads them too.
void ReduceModulesIn(at::ScalarType dtype, const std::vector<std::string>& classes,
                     const BlockList& model, std::vector<zero::ParameterUnit>* units);

// sparse_gradients: by rows, those of embedding tables that no other block reads: a head's gradient
// has no row of zeros.
void ReduceEmbeddingsByRows(const BlockList& model, std::vector<zero::ParameterUnit>* units);

}  // namespace ds::engine
