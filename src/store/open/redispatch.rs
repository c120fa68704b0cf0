//! Dispatches in bulk what recovery found undispatched.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::log::queue::unit::MAX_KEYS;
use crate::log::read::scanner::Stop;
use crate::log::{IndexBuilder, IndexService};

use crate::files::threads::beside;
use crate::store::dispatch::collect::{DispatchBatch, Wanted};
use crate::store::dispatch::log_parts::{Checked, LastParts, LogReading};
use crate::store::store_files::StoreFiles;
use crate::store::write::writer::Writer;

/// A shorter part of the log is indexed key by key.
const LONG: u64 = 16 << 20;

/// Entries in memory before all queues are written out.
const MOST_WAITING: usize = 1 << 18;

impl Writer {
    /// Dispatches what is undispatched, reusing parts in `read`, while another thread runs
    /// `durable`. Returns the number of records.
    pub(crate) fn redispatch_beside(
        &self,
        read: LastParts,
        durable: impl FnOnce() -> Result<()> + Send,
    ) -> Result<u64> {
        let end = self.readable_end();
        if end.saturating_sub(self.dispatched.load(Ordering::Acquire)) < LONG {
            durable()?;
            return self.redispatch(read, end);
        }
        let root = self.files.paths.root();
        let dispatch = || self.redispatch(read, end);
        beside("mqstore-durable", root, durable, dispatch).map(|(_, count)| count)
    }

    fn redispatch(&self, read: LastParts, end: u64) -> Result<u64> {
        let files = &*self.files;
        let dispatcher = &mut *self.dispatcher.lock();
        let start = self.dispatched.load(Ordering::Acquire);
        let mut keys = match dispatcher.index.take() {
            Some(service) => KeySink::behind(service, files, end.saturating_sub(start))?,
            None => KeySink::None,
        };
        let read = read.from(start);
        let again = read.front().map_or(end, |part| part.begin);
        let mut enter = into_queues(files);
        let mut count = 0;
        if start < again {
            let wanted = Wanted { with_index: files.index.is_some(), ..Wanted::all(&files.queues) };
            let reading = LogReading::new(files.log.run(), wanted, again, Checked::Nothing);
            let (_, stop) = reading.each(start, &mut |part| {
                enter(&part.collected)?;
                keys.put(&part.collected)?;
                count += part.collected.records;
                reading.spare.put_back([part.collected]);
                Ok(ControlFlow::Continue(()))
            })?;
            if let Some(Stop::Damage(corruption)) = stop {
                return Err(Error::Corrupt(Box::new(corruption)));
            }
        }
        count += read.iter().map(|part| part.collected.records).sum::<u64>();
        let mut add = || read.iter().try_for_each(|part| enter(&part.collected));
        let mut put = || read.iter().try_for_each(|part| keys.put(&part.collected));
        if end.saturating_sub(again) < LONG {
            add().and_then(|()| put())?;
        } else {
            beside("mqstore-dispatch", self.files.paths.root(), add, put)?;
        }
        let (service, full_until_ms) = keys.finish()?;
        dispatcher.index = service;
        self.set_dispatched(dispatcher, end);
        if let Some(index_ms) = full_until_ms {
            let known = &mut self.checkpoint.lock().fields.index_msg_timestamp_ms;
            *known = (*known).max(index_ms);
        }
        Ok(count)
    }
}

fn into_queues(files: &StoreFiles) -> impl FnMut(&DispatchBatch) -> Result<()> {
    let mut waiting = 0;
    move |collected| {
        // No thread commits yet, and each of many queues would keep entries in memory.
        waiting += collected.units.len();
        if waiting >= MOST_WAITING {
            files.queues.commit()?;
            waiting = 0;
        }
        collected.add_to(&files.queues)
    }
}

enum KeySink {
    None,
    /// Through the map of its last file.
    One(IndexService),
    /// Into new files, in order; earlier files hold some keys, `held`, of their last message.
    Bulk {
        service: IndexService,
        builder: Box<IndexBuilder>,
        held: Option<(i64, usize)>,
    },
}

impl KeySink {
    fn behind(mut service: IndexService, files: &StoreFiles, bytes: u64) -> Result<Self> {
        if bytes < LONG {
            return Ok(Self::One(service));
        }
        service.drain()?;
        let run = service.run();
        let (storage, clock) = (Arc::clone(&files.paths.storage), Arc::clone(&files.clock));
        let Some(builder) = IndexBuilder::behind(storage, run.dir(), run.layout(), clock)? else {
            return Ok(Self::One(service));
        };
        let held = service.run().last_keys_put()?;
        Ok(Self::Bulk { service, builder: Box::new(builder), held })
    }

    fn put(&mut self, collected: &DispatchBatch) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::One(service) => collected.keyed().try_for_each(|(keyed, hashes)| {
                let hashes = hashes.get(..MAX_KEYS).unwrap_or(hashes);
                service.put(keyed.physical_offset, keyed.store_timestamp_ms, hashes).map(drop)
            }),
            Self::Bulk { builder, held, .. } => collected.put_keys(builder, |keyed| match *held {
                Some((last, _)) if keyed.physical_offset < last => usize::MAX,
                Some((last, known)) if keyed.physical_offset == last => known,
                _ => 0,
            }),
        }
    }

    fn finish(self) -> Result<(Option<IndexService>, Option<i64>)> {
        match self {
            Self::None => Ok((None, None)),
            Self::One(mut service) => {
                service.drain()?;
                Ok((Some(service), None))
            }
            Self::Bulk { service, builder, .. } => {
                let built = builder.hand_over()?;
                service.run().refresh()?;
                Ok((Some(service), built.full_until_ms))
            }
        }
    }
}
