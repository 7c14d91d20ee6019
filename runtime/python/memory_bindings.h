#pragma once

// BindMemory adds plan_memory, the memory plan of a model of units, to the extension module. It
// needs no job.

#include <pybind11/pybind11.h>

namespace ds::python {

void BindMemory(pybind11::module_& module);

}  // namespace ds::python
