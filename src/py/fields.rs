//! What `append` and `Message` take, turned into what the store takes.

use std::cell::Cell;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMapping, PyMemoryView, PyString, PyTuple};

use crate::format::host::Host;
use crate::store::compose::PropertyBlock;

use super::errors::invalid;

/// The bytes of anything with the buffer protocol; only what is no `bytes` is copied.
#[inline]
pub(super) fn bytes_of<'py>(buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    match buffer.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.clone()),
        Err(_) => {
            let view = PyMemoryView::from(buffer)?;
            Ok(view.call_method0("tobytes")?.cast_into::<PyBytes>()?)
        }
    }
}

/// An address of a message.
pub(super) fn host_of(field: &'static str, text: Option<&str>) -> PyResult<Option<Host>> {
    match text {
        None => Ok(None),
        Some(text) => match text.parse() {
            Ok(host) => Ok(Some(host)),
            Err(error) => Err(invalid(field, format!("{text:?} is {error}"))),
        },
    }
}

/// The properties of a message as they are given.
pub(super) struct Named<'a, 'py> {
    pub(super) tags: Option<&'a str>,
    pub(super) keys: Option<&'a Bound<'py, PyAny>>,
    pub(super) unique_key: Option<&'a str>,
    pub(super) delay_level: i32,
    pub(super) properties: Option<&'a Bound<'py, PyAny>>,
}

impl<'a, 'py> Named<'a, 'py> {
    /// Writes the block to `out`, or gives the one that was given whole.
    #[inline]
    pub(super) fn compose(&self, out: &mut Vec<u8>) -> PyResult<Composed<'a, 'py>> {
        if let Some(whole) = self.properties.and_then(|given| given.cast::<PyBytes>().ok()) {
            return self.alone(whole).map(Composed::Whole);
        }
        let mut block = PropertyBlock::new(out);
        if let Some(tags) = self.tags {
            block.tags(tags.as_bytes())?;
        }
        if let Some(keys) = self.keys {
            each_key(keys, |key| Ok(block.key(key.as_bytes())?))?;
            block.end_keys();
        }
        if let Some(unique_key) = self.unique_key {
            block.unique_key(unique_key.as_bytes())?;
        }
        block.delay_level(self.delay_level)?;
        if let Some(properties) = self.properties {
            each_pair(properties, |name, value| {
                let (name, value) = (name.to_str()?, value.to_str()?);
                Ok(block.pair(name.as_bytes(), value.as_bytes())?)
            })?;
        }
        Ok(Composed::Written { counts_inner_messages: block.counts_inner_messages() })
    }

    /// A block given as bytes is the whole of it.
    fn alone(&self, whole: &'a Bound<'py, PyBytes>) -> PyResult<&'a Bound<'py, PyBytes>> {
        let beside = if self.tags.is_some() {
            "tags"
        } else if self.unique_key.is_some() {
            "unique_key"
        } else if self.delay_level != 0 {
            "delay_level"
        } else {
            let mut has_keys = false;
            if let Some(keys) = self.keys {
                each_key(keys, |_| {
                    has_keys = true;
                    Ok(())
                })?;
            }
            if !has_keys {
                return Ok(whole);
            }
            "keys"
        };
        Err(invalid(beside, "cannot stand beside properties given as bytes, which are all of them"))
    }
}

/// Where the property block of a message is.
pub(super) enum Composed<'a, 'py> {
    /// It was written.
    Written {
        /// Whether it has the property that only a batch may have.
        counts_inner_messages: bool,
    },
    /// It was given.
    Whole(&'a Bound<'py, PyBytes>),
}

/// Calls `take` with the one key or with each of them.
#[inline]
pub(super) fn each_key<'py>(
    keys: &Bound<'py, PyAny>,
    mut take: impl FnMut(&str) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(one) = keys.cast::<PyString>() {
        return take(one.to_str()?);
    }
    if let Ok(keys) = keys.cast_exact::<PyTuple>() {
        for key in keys.iter_borrowed() {
            take(key.cast::<PyString>()?.to_str()?)?;
        }
        return Ok(());
    }
    for key in keys.try_iter()? {
        take(key?.cast_into::<PyString>()?.to_str()?)?;
    }
    Ok(())
}

/// Calls `take` with each name and value of a mapping, in its own order.
pub(super) fn each_pair<'py>(
    properties: &Bound<'py, PyAny>,
    mut take: impl FnMut(&Bound<'py, PyString>, &Bound<'py, PyString>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(pairs) = properties.cast_exact::<PyDict>() {
        // Another thread may change a dict while it is walked, but not its copy.
        for (name, value) in pairs.copy()? {
            take(name.cast()?, value.cast()?)?;
        }
        return Ok(());
    }
    for pair in properties.cast::<PyMapping>()?.items()?.iter() {
        let (name, value): (Bound<'_, PyString>, Bound<'_, PyString>) = pair.extract()?;
        take(&name, &value)?;
    }
    Ok(())
}

thread_local! {
    static BLOCK: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the thread's buffer, empty. It is taken out meanwhile: what `work` calls may come here again.
#[inline]
pub(super) fn with_block<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut block = BLOCK.take();
    block.clear();
    let result = work(&mut block);
    BLOCK.set(block);
    result
}
