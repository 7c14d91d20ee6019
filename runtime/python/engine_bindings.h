#pragma once

// The parts of _native that dsrun/engine.py uses.

#include <pybind11/pybind11.h>

namespace ds::python {

// The class Engine: one engine and its passes.
void BindEngine(pybind11::module_& module);
// Functions that read checkpoints without an engine.
void BindCheckpoints(pybind11::module_& module);

}  // namespace ds::python
