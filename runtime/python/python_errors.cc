#include "runtime/python/python_errors.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

namespace ds::python {
namespace {

PyObject* FindExceptionType(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
      return PyExc_ValueError;
    case StatusCode::kNotFound:
      return PyExc_KeyError;
    case StatusCode::kUnimplemented:
      return PyExc_NotImplementedError;
    case StatusCode::kDeadlineExceeded:
      return PyExc_TimeoutError;
    default:
      return PyExc_RuntimeError;
  }
}

// Sets the error of a class of a Python module of PyTorch: LibTorch does not export its objects.
void SetTorchError(const char* module, const char* name, const char* message) {
  const auto kind = pybind11::module_::import(module).attr(name);
  PyErr_SetString(kind.ptr(), message);
}

void SetDistributedError(const char* name, const char* message) {
  SetTorchError("torch.distributed", name, message);
}

void Translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (python_error& error) {  // of Python code within a backward pass
    error.restore();
  } catch (const StatusError& error) {
    if (error.code() == StatusCode::kUnavailable) {
      return SetDistributedError("DistNetworkError", error.what());
    }
    PyErr_SetString(FindExceptionType(error.code()), error.what());
  } catch (const c10::DistNetworkError& error) {
    SetDistributedError("DistNetworkError", error.what_without_backtrace());
  } catch (const c10::DistBackendError& error) {
    SetDistributedError("DistBackendError", error.what_without_backtrace());
  } catch (const c10::OutOfMemoryError& error) {
    SetTorchError("torch", "OutOfMemoryError", error.what_without_backtrace());
  } catch (const c10::IndexError& error) {
    PyErr_SetString(PyExc_IndexError, error.what_without_backtrace());
  } catch (const c10::ValueError& error) {
    PyErr_SetString(PyExc_ValueError, error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    PyErr_SetString(PyExc_TypeError, error.what_without_backtrace());
  } catch (const c10::NotImplementedError& error) {
    PyErr_SetString(PyExc_NotImplementedError, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  }
}

}  // namespace

void RegisterErrors(pybind11::module_& /*module*/) {
  pybind11::register_local_exception_translator(&Translate);
}

}  // namespace ds::python
