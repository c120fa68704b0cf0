//! Reuses memory of finished batches: touched pages are several times as fast as new ones.

use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer, ToByteSlice};
use bytes::Bytes;

const MOST_KEPT: usize = 64 << 20;
const SPARE: usize = 4;

#[derive(Debug)]
pub(crate) struct Gathered<T> {
    values: Vec<T>,
    pool: Arc<Pool<T>>,
}

impl<T: ArrowNativeType> Gathered<T> {
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), pool: Arc::new(Pool { spare: Mutex::default() }) }
    }

    /// Returns the values as a buffer; its memory comes back when the last holder drops it.
    pub(crate) fn finish(&mut self) -> Buffer {
        let values = std::mem::replace(&mut self.values, self.pool.take());
        Buffer::from(Bytes::from_owner(Lent { values, pool: Arc::downgrade(&self.pool) }))
    }

    pub(crate) fn finish_numbers(&mut self) -> ScalarBuffer<T> {
        ScalarBuffer::from(self.finish())
    }

    #[cfg(test)]
    pub(crate) fn spare(&self) -> usize {
        let spare = self.pool.spare.lock();
        assert!(spare.iter().all(Vec::is_empty) && spare.len() <= SPARE);
        spare.len()
    }
}

impl<T> Deref for Gathered<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.values
    }
}

impl<T> DerefMut for Gathered<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.values
    }
}

#[derive(Debug)]
struct Pool<T> {
    spare: Mutex<Vec<Vec<T>>>,
}

impl<T> Pool<T> {
    fn take(&self) -> Vec<T> {
        self.spare.lock().pop().unwrap_or_default()
    }

    fn give(&self, mut values: Vec<T>) {
        values.clear();
        let mut spare = self.spare.lock();
        if values.capacity().saturating_mul(size_of::<T>()) <= MOST_KEPT && spare.len() < SPARE {
            spare.push(values);
        }
    }
}

struct Lent<T> {
    values: Vec<T>,
    pool: Weak<Pool<T>>,
}

impl<T: ArrowNativeType> AsRef<[u8]> for Lent<T> {
    fn as_ref(&self) -> &[u8] {
        self.values.as_slice().to_byte_slice()
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.give(std::mem::take(&mut self.values));
        }
    }
}
