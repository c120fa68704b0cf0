//! Dispatches in bulk what recovery found undispatched.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::log::dispatch_keys::MAX_KEYS;
use crate::log::read::scanner::Stop;
use crate::log::{IndexBuilder, IndexService};

use super::gather::{Gathered, Wanted};
use super::log_parts::{LastParts, LogPart, LogReading};
use crate::store::open::recover::beside;
use crate::store::write::core::{Core, Writing};

/// A shorter part of the log is indexed key by key.
const LONG: u64 = 16 << 20;

/// Entries in memory before all queues are written out.
const MOST_WAITING: usize = 1 << 18;

impl Core {
    /// Dispatches what is undispatched, reusing parts in `read`, while another thread runs
    /// `durable`. Returns the number of records.
    pub(crate) fn redispatch_beside(
        &self,
        read: LastParts,
        durable: impl FnOnce() -> Result<()> + Send,
    ) -> Result<u64> {
        let Some(writing) = &self.writing else { return durable().map(|()| 0) };
        let end = self.readable_end();
        if end.saturating_sub(writing.dispatched.load(Ordering::Acquire)) < LONG {
            durable()?;
            return self.redispatch(writing, read, end);
        }
        beside("mqstore-durable", self.paths.root(), durable, || {
            self.redispatch(writing, read, end)
        })
    }

    fn redispatch(&self, writing: &Writing, read: LastParts, end: u64) -> Result<u64> {
        let dispatcher = &mut *writing.dispatcher.lock();
        let start = writing.dispatched.load(Ordering::Acquire);
        let mut keys = match dispatcher.index.take() {
            Some(service) => KeySink::behind(service, self, end.saturating_sub(start))?,
            None => KeySink::None,
        };
        let read = read.from(start);
        let again = read.front().map_or(end, LogPart::start);
        let mut queues = QueueSink { core: self, waiting: 0 };
        let mut count = 0;
        if start < again {
            let wanted = Wanted { with_index: self.index.is_some(), ..Wanted::all(&self.queues) };
            let reading = LogReading::new(&self.log, wanted, again, false);
            let walked = reading.each(start, &mut |part| {
                queues.add(&part.gathered)?;
                keys.put(&part.gathered)?;
                count += part.gathered.records;
                reading.spare().give_back([part.gathered]);
                Ok(ControlFlow::Continue(()))
            })?;
            if let Some(Stop::Damage(corruption)) = walked.stop {
                return Err(Error::Corrupt(Box::new(corruption)));
            }
        }
        count += read.iter().map(|part| part.gathered.records).sum::<u64>();
        let mut add = || read.iter().try_for_each(|part| queues.add(&part.gathered));
        let mut put = || read.iter().try_for_each(|part| keys.put(&part.gathered));
        if end.saturating_sub(again) < LONG {
            add().and_then(|()| put())?;
        } else {
            beside("mqstore-dispatch", self.paths.root(), add, put)?;
        }
        writing.dispatched.store(end, Ordering::Release);
        let (service, full_until_ms) = keys.finish()?;
        dispatcher.index = service;
        if let Some(index_ms) = full_until_ms {
            let known = &mut writing.checkpoint.lock().fields.index_msg_timestamp_ms;
            *known = (*known).max(index_ms);
        }
        Ok(count)
    }
}

struct QueueSink<'c> {
    core: &'c Core,
    waiting: usize,
}

impl QueueSink<'_> {
    fn add(&mut self, gathered: &Gathered) -> Result<()> {
        // No thread commits yet, and each of many queues would keep entries in memory.
        self.waiting += gathered.units.len();
        if self.waiting >= MOST_WAITING {
            self.core.queues.commit()?;
            self.waiting = 0;
        }
        gathered.add_to(&self.core.queues)
    }
}

enum KeySink {
    None,
    /// Through the map of its last file.
    One(IndexService),
    /// Into new files, in order; earlier files reach up to a message whose keys they may hold in
    /// part.
    Bulk {
        service: IndexService,
        builder: Box<IndexBuilder>,
        reach: Option<(i64, usize)>,
    },
}

impl KeySink {
    fn behind(mut service: IndexService, core: &Core, bytes: u64) -> Result<Self> {
        if bytes < LONG {
            return Ok(Self::One(service));
        }
        service.drain()?;
        let run = service.run();
        let (storage, clock) = (Arc::clone(&core.storage), Arc::clone(&core.clock));
        let Some(builder) = IndexBuilder::behind(storage, run.dir(), run.layout(), clock)? else {
            return Ok(Self::One(service));
        };
        let reach = match service.reach()? {
            Some(reach) => Some((reach, service.keys_put(reach)?)),
            None => None,
        };
        Ok(Self::Bulk { service, builder: Box::new(builder), reach })
    }

    fn put(&mut self, gathered: &Gathered) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::One(service) => gathered.keyed().try_for_each(|(keyed, hashes)| {
                let hashes = hashes.get(..MAX_KEYS).unwrap_or(hashes);
                service.put(keyed.physical_offset, keyed.store_timestamp_ms, hashes)
            }),
            Self::Bulk { builder, reach, .. } => gathered.put_keys(builder, |keyed| match *reach {
                Some((reach, _)) if keyed.physical_offset < reach => usize::MAX,
                Some((reach, known)) if keyed.physical_offset == reach => known,
                _ => 0,
            }),
        }
    }

    /// Returns the service, and the store time up to which full files are durable.
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
