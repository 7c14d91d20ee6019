#pragma once

// The class _native.Engine: one engine and its passes, for dsrun/engine.py.

#include <pybind11/pybind11.h>

namespace ds::python {

void BindCheckpoints(pybind11::module_& module);
void BindEngine(pybind11::module_& module);

}  // namespace ds::python
