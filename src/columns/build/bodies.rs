//! Columns of bodies: copied, or views into the blocks that were read.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::BinaryViewBuilder;
use arrow_buffer::Buffer;
use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;

use super::variable::VariableColumn;
use crate::log::Block;

/// Maximum unused bytes of blocks that a batch may hold; beyond it bodies are copied.
const MOST_PINNED: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Pinned {
    block: Arc<Block>,
    buffer: Buffer,
    number: usize,
}

struct HeldBlock(Arc<Block>);

impl AsRef<[u8]> for HeldBlock {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[derive(Debug)]
pub(crate) struct Pins {
    most_bytes: usize,
    bytes: usize,
    count: usize,
    last: Option<Pinned>,
}

impl Pins {
    pub(crate) fn new(body_bytes: usize) -> Self {
        let most_bytes = body_bytes.saturating_mul(2).saturating_add(MOST_PINNED);
        Self { most_bytes, bytes: 0, count: 0, last: None }
    }

    /// Pins `block` for the batch; `None` if the batch holds enough already.
    pub(crate) fn pin(&mut self, block: &Arc<Block>) -> Option<&Pinned> {
        if !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(&last.block, block)) {
            self.last = None;
            let bytes = self.bytes.saturating_add(block.as_bytes().len());
            if bytes <= self.most_bytes {
                self.bytes = bytes;
                self.count += 1;
                let buffer = Buffer::from(Bytes::from_owner(HeldBlock(Arc::clone(block))));
                let block = Arc::clone(block);
                self.last = Some(Pinned { block, buffer, number: self.count });
            }
        }
        self.last.as_ref()
    }

    pub(crate) fn clear(&mut self) {
        (self.bytes, self.count, self.last) = (0, 0, None);
    }
}

#[derive(Debug)]
pub(crate) enum Bodies {
    Copied(VariableColumn),
    Shared {
        views: BinaryViewBuilder,
        /// The last block and its index in the column.
        block: Option<(usize, u32)>,
    },
}

impl Bodies {
    /// An empty column of a binary or view type.
    pub(crate) fn new(data_type: &DataType) -> Result<Self, ArrowError> {
        Ok(match data_type {
            DataType::BinaryView => Self::Shared { views: BinaryViewBuilder::new(), block: None },
            other => Self::Copied(VariableColumn::new(other)?),
        })
    }

    pub(crate) fn shares(&self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// Adds bodies; those in `pinned` are not copied.
    pub(crate) fn extend<'a>(
        &mut self,
        bodies: impl Iterator<Item = &'a [u8]>,
        pinned: Option<&Pinned>,
    ) -> Result<(), ArrowError> {
        let (views, block) = match self {
            Self::Copied(column) => {
                column.extend(bodies);
                return Ok(());
            }
            Self::Shared { views, block } => (views, block),
        };
        let number = match (pinned, &block) {
            (Some(pinned), Some((known, number))) if pinned.number == *known => *number,
            (Some(pinned), _) => {
                let number = views.append_block(pinned.buffer.clone());
                *block = Some((pinned.number, number));
                number
            }
            (None, _) => 0,
        };
        for body in bodies {
            let place = pinned
                .and_then(|pinned| pinned.block.place_of(body))
                .and_then(|place| u32::try_from(place).ok().zip(u32::try_from(body.len()).ok()));
            match place {
                Some((place, len)) => views.try_append_view(number, place, len)?,
                None => views.try_append_value(body)?,
            }
        }
        Ok(())
    }

    /// Returns the column as an array and empties it.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Copied(column) => column.finish(),
            Self::Shared { views, block } => {
                *block = None;
                Ok(Arc::new(views.finish()))
            }
        }
    }
}
