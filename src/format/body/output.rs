//! Bounded output of a codec.

use super::BodyError;

pub(crate) struct Output {
    bytes: Vec<u8>,
    limit: usize,
}

impl Output {
    pub(crate) const fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Lets `decode` append up to `wanted` bytes; it returns how many it wrote. The room is shorter
    /// only one byte past the limit, so a full buffer means too much output.
    pub(crate) fn fill(
        &mut self,
        wanted: usize,
        decode: impl FnOnce(&[u8], &mut [u8]) -> Result<usize, BodyError>,
    ) -> Result<(), BodyError> {
        let start = self.bytes.len();
        let end = start.saturating_add(wanted).min(self.limit.saturating_add(1));
        if end > self.bytes.capacity() {
            // Twice as much each time, but never more than the limit asks for.
            let capacity = end.max(start.saturating_mul(2).min(self.limit));
            let reserved = self.bytes.try_reserve_exact(capacity - start);
            reserved.map_err(|_| BodyError::OutOfMemory { bytes: capacity })?;
        }
        self.bytes.resize(end, 0);
        let (before, room) = self.bytes.split_at_mut(start);
        let length = decode(before, room)?;
        self.bytes.truncate(start.saturating_add(length));
        if self.bytes.len() > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        Ok(())
    }
}
