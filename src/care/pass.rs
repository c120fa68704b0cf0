//! One walk over a store's messages, for counting.

use crate::error::Result;
use crate::format::message::MessageView;
use crate::log::read::scanner::Flow;
use crate::store::MessageStore;
use crate::store::progress::{Progress, report_progress};
use crate::store::read::scan::{OnDamage, Scan, ScanFilter};

const STEP: u64 = 16 << 20;

/// Skipped damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Number of byte ranges.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
}

pub(super) fn each_message(
    store: &MessageStore,
    on_damage: OnDamage,
    progress: &mut Progress<'_>,
    mut take: impl FnMut(&MessageView<'_>),
) -> Result<Skipped> {
    let (begin, end) = (store.log().min_offset(), store.end_offset());
    let total = end.saturating_sub(begin);
    let mut scan = Scan::new(begin, end, end, ScanFilter::ALL, on_damage);
    loop {
        let mut read = 0_u64;
        let more = scan.run(store.log(), |view, _| {
            take(view);
            read = read.saturating_add(u64::from(view.store_size()));
            Ok(if read < STEP { Flow::Continue } else { Flow::Stop })
        })?;
        let done = if more { scan.physical_offset().saturating_sub(begin) } else { total };
        report_progress(progress, (done, total), "read", store.path())?;
        if !more {
            return Ok(Skipped { ranges: scan.skipped_ranges(), bytes: scan.skipped_bytes() });
        }
    }
}
