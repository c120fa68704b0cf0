//! `Store.append` by vector call: pyo3's method with `**others` takes a tuple and a dict (ADR 14).
#![allow(unsafe_code, reason = "pyo3 has no safe way to define such a method")]

use std::ffi::CString;

use pyo3::PyClass;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::impl_::trampoline::get_trampoline_function;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use super::Store;
use super::message_fields::{MessageFields, NAMES};
use crate::format::width::to_usize;

static USUAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `append` takes the first of [`NAMES`].
const TAKEN: usize = 11;
/// The objects of literal names.
static INTERNED: PyOnceLock<[Py<PyString>; TAKEN]> = PyOnceLock::new();

/// The place in [`NAMES`] of an argument of `append`.
pub(super) fn place_of(name: &Bound<'_, PyAny>) -> Option<usize> {
    let py = name.py();
    let interned = INTERNED
        .get_or_init(py, || std::array::from_fn(|at| PyString::intern(py, NAMES[at]).unbind()));
    interned.iter().position(|known| known.as_ptr() == name.as_ptr()).or_else(|| {
        let name = name.cast::<PyString>().ok()?.to_str().ok()?;
        NAMES[..TAKEN].iter().position(|known| *known == name)
    })
}

pub(crate) fn install(class: &Bound<'_, PyType>) -> PyResult<()> {
    let usual = class.getattr("append")?;
    let signature: String = usual.getattr("__text_signature__")?.extract()?;
    let doc: String = usual.getattr("__doc__")?.extract()?;
    let doc = CString::new(format!("append{signature}\n--\n\n{doc}"))?;
    let append = get_trampoline_function!(fastcall_cfunction_with_keywords, append);
    let definition = ffi::PyMethodDef {
        ml_name: c"append".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: append },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: doc.into_raw(),
    };
    let definition = Box::leak(Box::new(definition));
    // SAFETY: the class lives, the definition is leaked.
    let method = unsafe { ffi::PyDescr_NewMethod(class.as_type_ptr(), definition) };
    // SAFETY: a new reference, or null and an error.
    let method = unsafe { Bound::from_owned_ptr_or_err(class.py(), method) }?;
    USUAL.get_or_init(class.py(), || usual.unbind());
    class.setattr("append", method)
}

/// `values`: positional ones, then those of `names`.
struct Call<'a, 'py> {
    this: Borrowed<'a, 'py, PyAny>,
    values: &'a [*mut ffi::PyObject],
    positional: usize,
    names: Option<Borrowed<'a, 'py, PyTuple>>,
}

impl<'a, 'py> Call<'a, 'py> {
    fn value(&self, at: usize) -> Borrowed<'a, 'py, PyAny> {
        // SAFETY: alive during the call.
        unsafe { Borrowed::from_ptr(self.this.py(), self.values[at]) }
    }

    fn named(&self) -> impl Iterator<Item = (Borrowed<'_, 'py, PyAny>, Borrowed<'a, 'py, PyAny>)> {
        let names = self.names.iter().flat_map(|names| names.iter_borrowed());
        names.enumerate().map(|(number, name)| (name, self.value(self.positional + number)))
    }

    /// `None`: pyo3's method takes or refuses it.
    fn quickly(&self) -> PyResult<Option<Bound<'py, PyAny>>> {
        let is_given =
            |at| at < self.positional || self.named().any(|(name, _)| place_of(&name) == Some(at));
        if self.positional > 2 || !is_given(0) || !is_given(1) {
            return Ok(None);
        }
        let mut arguments = MessageFields::new();
        for at in 0..self.positional {
            arguments.set_at(at, &self.value(at))?;
        }
        for (name, value) in self.named() {
            let at = place_of(&name).filter(|at| *at >= self.positional);
            let Some(at) = at else { return Ok(None) };
            arguments.set_at(at, &value)?;
        }
        let store = self.this.cast::<Store>()?.get();
        let result = store.append_given(self.this.py(), &arguments)?;
        Ok(Some(untracked(Bound::new(self.this.py(), result)?).into_any()))
    }

    fn usually(&self) -> PyResult<Bound<'py, PyAny>> {
        let py = self.this.py();
        let usual =
            USUAL.get(py).ok_or_else(|| PyRuntimeError::new_err("append is not installed"))?;
        let positional = (0..self.positional).map(|at| self.value(at));
        let given: Vec<_> = [self.this].into_iter().chain(positional).collect();
        let named = PyDict::new(py);
        for (name, value) in self.named() {
            named.set_item(name, value)?;
        }
        usual.bind(py).call(PyTuple::new(py, given)?, Some(&named))
    }
}

unsafe fn append(
    py: Python<'_>,
    this: *mut ffi::PyObject,
    values: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> PyResult<*mut ffi::PyObject> {
    // SAFETY: alive during the call.
    let this = unsafe { Borrowed::from_ptr(py, this) };
    // SAFETY: a live tuple, or null.
    let names = unsafe { Borrowed::from_ptr_or_opt(py, names) };
    let names = names.map(|names| names.cast::<PyTuple>()).transpose()?;
    let positional = to_usize(count.unsigned_abs() as u64);
    let len = positional + names.map_or(0, |names| names.len());
    let values = match len {
        0 => &[],
        // SAFETY: so many live references (PEP 590).
        _ => unsafe { std::slice::from_raw_parts(values, len) },
    };
    let call = Call { this, values, positional, names };
    let result = match call.quickly()? {
        Some(result) => result,
        None => call.usually()?,
    };
    Ok(result.into_ptr())
}

/// Takes a new object, which refers to no other one, from the garbage collector.
#[inline]
pub(crate) fn untracked<T: PyClass>(object: Bound<'_, T>) -> Bound<'_, T> {
    // SAFETY: a live object of a class with the collector's flag, which each class of pyo3 has.
    unsafe { ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) };
    object
}
