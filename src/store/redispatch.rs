//! Putting into queues and index what recovery found undispatched, of a long log in bulk.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::log::index_service::DispatchKeys;
use crate::log::scanner::{self, Stop, Walked};
use crate::log::{IndexBuilder, IndexService};

use super::core::{COMMIT_BYTES, Core, Writing, guard};
use super::dispatch::DispatchRequest;

/// A shorter part of the log is put into the index key by key.
const LONG: u64 = 16 << 20;

impl Core {
    /// Dispatches what recovery found undispatched, while another thread does `durable`; how many
    /// records that was.
    pub(super) fn redispatch_beside(
        &self,
        durable: impl FnOnce() -> Result<()> + Send,
    ) -> Result<u64> {
        let Some(writing) = &self.writing else { return durable().map(|()| 0) };
        let end = self.readable_end();
        if end.saturating_sub(writing.dispatched.load(Ordering::Acquire)) < LONG {
            durable()?;
            return self.redispatch(writing, end);
        }
        std::thread::scope(|scope| {
            let beside = std::thread::Builder::new()
                .name("mqstore-durable".to_owned())
                .spawn_scoped(scope, durable)
                .map_err(Error::io("start a thread for", self.paths.root()))?;
            let dispatched = self.redispatch(writing, end);
            match beside.join() {
                Ok(outcome) => outcome.and(dispatched),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn redispatch(&self, writing: &Writing, end: u64) -> Result<u64> {
        let dispatcher = &mut *guard(&writing.dispatcher);
        let start = writing.dispatched.load(Ordering::Acquire);
        let mut keys = match dispatcher.index.take() {
            Some(service) => Keys::behind(service, self, end.saturating_sub(start))?,
            None => Keys::None,
        };
        let (mut count, mut committed) = (0, start);
        let walked = scanner::each_ahead(&self.log, start, end, false, |view| {
            let request = DispatchRequest::of(view);
            dispatcher.dispatch(&request, None, &self.queues)?;
            keys.put(&request.keys())?;
            writing.has_dispatched(&request);
            count += 1;
            // No thread does it yet, and of very many queues each would hold entries in memory.
            if request.end().saturating_sub(committed) >= COMMIT_BYTES {
                self.queues.commit()?;
                committed = request.end();
            }
            Ok(ControlFlow::Continue(()))
        });
        let Walked { end, stop } = walked?;
        if let Some(Stop::Damage(corruption)) = stop {
            return Err(Error::Corrupt(Box::new(corruption)));
        }
        writing.dispatched.store(end, Ordering::Release);
        let (service, full_until_ms) = keys.finish()?;
        dispatcher.index = service;
        if let Some(index_ms) = full_until_ms {
            let known = &mut guard(&writing.checkpoint).fields.index_msg_timestamp_ms;
            *known = (*known).max(index_ms);
        }
        Ok(count)
    }
}

/// Where keys go.
enum Keys {
    /// There is no index.
    None,
    /// Through the map of its last file.
    One(IndexService),
    /// Into new files, written in order; those before reach up to a message some of whose keys they
    /// may hold.
    Bulk {
        service: IndexService,
        builder: Box<IndexBuilder>,
        reach: Option<(i64, usize)>,
        hashes: Vec<i32>,
    },
}

impl Keys {
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
        Ok(Self::Bulk { service, builder: Box::new(builder), reach, hashes: Vec::new() })
    }

    #[inline]
    fn put(&mut self, keys: &DispatchKeys<'_>) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::One(service) => service.build(keys).map(|_| ()),
            Self::Bulk { builder, reach, hashes, .. } => {
                let known = match *reach {
                    Some((reach, _)) if keys.physical_offset < reach => usize::MAX,
                    Some((reach, known)) if keys.physical_offset == reach => known,
                    _ => 0,
                };
                hashes.clear();
                hashes.extend(keys.hashes().skip(known));
                builder.put(keys.physical_offset, keys.store_timestamp_ms, hashes)
            }
        }
    }

    /// The service again, and up to which store time full files were made durable, if any were.
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
