//! Appends of single and many messages.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::error;
use crate::format::message::properties::{self, names};
use crate::store::write::property_block::check_inner_batch;
use crate::store::{MessageStore, NewMessage};

use super::Store;
use super::fastcall::{place_of, untracked};
use super::message::{AnyMessage, key_list};
use super::message_fields::{Block, MessageFields};
use crate::py::arguments::type_error;
use crate::py::errors::{raise, raise_at, with_text};
use crate::py::fields::{self, bytes_of, unexpected, with_block};
use crate::py::values::{AppendResult, AppendSummary, dict, topic_of};

/// Messages, and bytes of bodies, that are checked before any is written, and written between
/// signal checks. The last body may exceed it.
pub(super) const CHUNK: usize = 1024;
pub(super) const CHUNK_BYTES: usize = 4 << 20;
/// Interval of signal checks while appends wait for queue files.
pub(super) const PACE: Duration = Duration::from_millis(50);

#[pymethods]
impl Store {
    /// Writes one message.
    ///
    /// Returns when the message is durable under ``SYNC_FLUSH``, and when it is in the log under
    /// ``ASYNC_FLUSH``. A read that follows in the same process sees it. The first append to a
    /// topic also enters it in ``config/topics.json``.
    ///
    /// Args:
    ///     topic: Name of the topic.
    ///     body: The body, stored unchanged.
    ///     queue_id: Number of the queue in its topic, from 0. ``None``: chosen by the first key as
    ///         RocketMQ's ``SelectMessageQueueByHash`` does it; without keys the queues in turn.
    ///     tags: The one tag of the message.
    ///     keys: One key, or an iterable of keys.
    ///     unique_key: The client's id of the message.
    ///     properties: Further properties; see ``Message``.
    ///     flag: An application-defined number.
    ///     born_timestamp_ms: The producer's time; ``None`` is now.
    ///     born_host: The producer's address; ``None`` is the store's own.
    ///     delay_level: Stored as property ``DELAY`` unless 0; the message is not delayed.
    ///     delay: Keeps the message back for so long: a ``timedelta``, or seconds, of the store's
    ///         delay levels (``message_delay_level``). It waits in ``SCHEDULE_TOPIC_XXXX``, where
    ///         the result leads, until a broker or a writer that delivers appends it. 0 is a plain
    ///         append.
    ///
    /// Raises:
    ///     InvalidMessageError: The message cannot be stored; ``.status`` is RocketMQ's status
    ///         for the reason. Nothing was written.
    ///     ConfigError: ``delay`` with ``delivery=False``, or in a broker's store without
    ///         ``delivery=True``; nothing was written.
    ///     ValueError: ``delay`` is none of the delay levels; nothing was written.
    ///     FlushTimeoutError: It is stored, but was not flushed in ``sync_flush_timeout``;
    ///         ``.result`` says where.
    ///     StorePoisonedError: A flush failed, now or before; the store is read-only until opened
    ///         again.
    ///     StoreReadOnlyError: The store was opened with mode ``"r"``.
    ///     StoreIOError: The disk is full, or a system call failed.
    #[pyo3(
        signature = (topic, body, *, delay=None, **others),
        text_signature = "($self, topic, body, *, queue_id=0, tags=None, keys=(), \
            unique_key=None, properties=None, flag=0, born_timestamp_ms=None, born_host=None, \
            delay_level=0, delay=None)"
    )]
    fn append(
        slf: &Bound<'_, Self>,
        py: Python<'_>,
        topic: &Bound<'_, PyAny>,
        body: &Bound<'_, PyAny>,
        delay: Option<&Bound<'_, PyAny>>,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<AppendResult> {
        let this = slf.get();
        let mut given = MessageFields::new();
        given.set_at(0, topic)?;
        given.set_at(1, body)?;
        for (name, value) in others.into_iter().flatten() {
            let at = place_of(&name).ok_or_else(|| unexpected("Store.append", &name))?;
            given.set_at(at, &value)?;
        }
        let store = this.writing()?;
        let Some(delay) = delay else { return this.append_given(py, &given) };
        let keys = given.keys.as_ref().map(key_list).transpose()?.unwrap_or_default();
        let first = keys.first().map(|key| key.as_bytes());
        let name = given.topic.as_deref().unwrap_or_default().as_bytes();
        let queue_id = given.queue_id.map_or_else(|| store.spread(name, first), Ok)?;
        let named = dict!(py, properties: py.None(), delay_level: 0,);
        if let Some(others) = others {
            named.update(others.as_mapping())?;
        }
        named.set_item("topic", topic)?;
        named.set_item("body", body)?;
        named.set_item("queue_id", queue_id)?;
        named.set_item("keys", PyTuple::new(py, &keys)?)?;
        let result = slf.call_method1("_append_delayed", (delay, named))?;
        Ok(result.cast_into::<AppendResult>()?.get().clone())
    }

    /// Writes many messages, sharing flushes.
    ///
    /// Args:
    ///     messages: Messages; mappings by the argument names of ``Message``; or tuples of its
    ///         first arguments: topic, body, and perhaps queue_id, tags, keys, unique_key,
    ///         properties. They are taken in chunks of at most 1,024 messages or 4 MiB of bodies,
    ///         and a chunk is checked before any of it is written; a crash may keep a part of it.
    ///     summary: Return an ``AppendSummary`` instead of an object for each message.
    ///
    /// Returns:
    ///     One result for each message, in order.
    ///
    /// Raises:
    ///     StoreError: As for ``append``; ``.index`` is the index of the failed message, and
    ///         ``.results`` has the results of the messages written before it.
    ///     TypeError: An item is not a message. This error, and any that ``messages`` raises, has
    ///         ``.index`` and ``.results`` too. Nothing of its chunk was written.
    ///     KeyboardInterrupt: Ctrl-C, between two chunks; ``.results`` has the results so far, and
    ///         ``.index`` is the index of the first message not written.
    #[pyo3(
        signature = (messages, /, *, summary=false, **others),
        text_signature = "($self, messages, /, *, summary=False)"
    )]
    fn append_many<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        summary: bool,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        fields::no_others("Store.append_many", others)?;
        let store = self.writing()?;
        let mut sum = AppendSummary::before(store.log().end_offset());
        let results = PyList::empty(py);
        let mut topic = None;
        let wanted = "an iterable of messages";
        let mut rest = messages
            .try_iter()
            .map_err(|error| fields::wrong_type("messages", wanted, messages, error))?;
        loop {
            let done = sum.len();
            let (mut chunk, mut bytes, mut more) = (Vec::new(), 0, false);
            for message in rest.by_ref() {
                let numbered = |error| {
                    let index = done + chunk.len();
                    with_text(py, error, |text| format!("message {index}: {text}"))
                };
                match message.and_then(|message| AnyMessage::of(message).map_err(numbered)) {
                    Ok(message) => {
                        bytes += message.get().view().body.len();
                        chunk.push(message);
                    }
                    Err(error) => {
                        let index = done + chunk.len();
                        return Err(culprit(py, error, &results, index));
                    }
                }
                more = chunk.len() >= CHUNK || bytes >= CHUNK_BYTES;
                if more {
                    break;
                }
            }
            let views = views(store, &chunk).map_err(|error| culprit(py, error, &results, done))?;
            pace(py, store, &views).map_err(|error| culprit(py, error, &results, results.len()))?;
            let (written, failure) = match py.detach(|| store.append_many(&views)) {
                Ok(written) => (written, None),
                Err(stopped) => {
                    let index = done + stopped.index;
                    (stopped.results, Some((stopped.error, index)))
                }
            };
            written.iter().for_each(|result| sum.add(result.physical_offset, result.store_size));
            for (result, view) in written.iter().zip(&views).filter(|_| !summary) {
                results.append(self.result(py, result, view, &mut topic)?)?;
            }
            if let Some((error, index)) = failure {
                let view = views.get(index - done);
                let (topic, queue_id) = view.map_or((&b""[..], 0), |at| (at.topic, at.queue_id));
                let error = raise_at(error, self.host(), topic, queue_id);
                let error = with_text(py, error, |text| format!("message {index}: {text}"));
                return Err(culprit(py, error, &results, index));
            }
            py.check_signals().map_err(|error| culprit(py, error, &results, sum.len()))?;
            if !more {
                return match summary {
                    true => Ok(Bound::new(py, sum)?.into_any()),
                    false => Ok(results.into_any()),
                };
            }
        }
    }

    /// Writes the messages of one queue as a producer's batch, or none if one is refused.
    ///
    /// They get consecutive queue offsets and one store time, and are adjacent in one file of the
    /// commit log. Each is stored as a separate message. A crash before the return may keep the
    /// first of them.
    ///
    /// Args:
    ///     messages: As for ``append_many``, all of one topic and queue, without a delay level and
    ///         outside of transactions.
    ///
    /// Returns:
    ///     One result for each message, in order.
    ///
    /// Raises:
    ///     InvalidMessageError: An invalid message, different queues, or a batch larger than a file
    ///         or ``max_message_size``; nothing was written.
    ///     StoreError: As ``append`` raises it.
    #[pyo3(signature = (messages, /))]
    fn append_batch<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let store = self.writing()?;
        let batch: Vec<_> = messages
            .try_iter()?
            .map(|message| message.and_then(AnyMessage::of))
            .collect::<PyResult<_>>()?;
        let views = views(store, &batch)?;
        let written =
            py.detach(|| store.append_batch(&views)).map_err(|error| raise(error, self.host()))?;
        let results = PyList::empty(py);
        let mut topic = None;
        for (result, view) in written.iter().zip(&views) {
            results.append(self.result(py, result, view, &mut topic)?)?;
        }
        Ok(results)
    }
}

impl Store {
    /// A result of one of many messages; `last` is the topic of the one before.
    fn result<'py>(
        &self,
        py: Python<'py>,
        result: &error::AppendResult,
        view: &NewMessage<'_>,
        last: &mut Option<Arc<str>>,
    ) -> PyResult<Bound<'py, AppendResult>> {
        let host = view.store_host.unwrap_or_else(|| self.host());
        let topic = Arc::clone(last.insert(topic_of(view.topic, last.as_ref())));
        Bound::new(py, AppendResult::new(result, host, topic, view.queue_id)).map(untracked)
    }

    #[inline]
    pub(super) fn append_given(
        &self,
        py: Python<'_>,
        given: &MessageFields<'_>,
    ) -> PyResult<AppendResult> {
        let store = self.writing()?;
        let (Some(topic), Some(body)) = (&given.topic, &given.body) else {
            return Err(type_error("topic, body", "both", "one of them"));
        };
        let body = bytes_of("body", body)?;
        with_block(|block| {
            let properties = match given.to_block(None, block)? {
                Block::Whole(whole) => whole.as_bytes(),
                Block::Written { counts_inner_messages } => {
                    check_inner_batch(counts_inner_messages, 0)?;
                    block.as_slice()
                }
            };
            let message = NewMessage {
                topic: topic.as_bytes(),
                queue_id: queue_of(store, given.queue_id, topic.as_bytes(), properties)?,
                body: body.as_bytes(),
                properties,
                ..given.record
            };
            pace(py, store, std::slice::from_ref(&message))?;
            let queue_id = message.queue_id;
            match py.detach(|| store.append(&message)) {
                Ok(result) => {
                    Ok(AppendResult::new(&result, self.host(), Arc::from(&**topic), queue_id))
                }
                Err(error) => Err(raise_at(error, self.host(), topic.as_bytes(), queue_id)),
            }
        })
    }
}

/// The error with the index of the failed message and the results of those before.
pub(super) fn culprit<'py>(
    py: Python<'py>,
    error: PyErr,
    results: impl IntoPyObject<'py>,
    index: usize,
) -> PyErr {
    let value = error.value(py);
    // An exception that takes no attribute is raised unchanged.
    let _ = value.setattr("results", results).and_then(|()| value.setattr("index", index));
    error
}

#[inline]
fn queue_of(store: &MessageStore, given: Option<i32>, topic: &[u8], block: &[u8]) -> PyResult<i32> {
    match given {
        Some(queue_id) => Ok(queue_id),
        None => {
            let keys = properties::get(block, names::KEYS);
            let first = keys.and_then(|keys| properties::split_keys(keys).next());
            Ok(store.spread(topic, first)?)
        }
    }
}

fn views<'a>(
    store: &MessageStore,
    messages: &'a [AnyMessage<'_>],
) -> PyResult<Vec<NewMessage<'a>>> {
    messages
        .iter()
        .map(|message| {
            let view = message.get().view();
            let queue_id = message.get().queue_id;
            let queue_id = queue_of(store, queue_id, view.topic, view.properties)?;
            Ok(NewMessage { queue_id, ..view })
        })
        .collect()
}

/// Waits while very many new queues lack files and one of `messages` needs another.
fn pace(py: Python<'_>, store: &MessageStore, messages: &[NewMessage<'_>]) -> PyResult<()> {
    while store.lacks_queue_files(messages) {
        py.detach(|| store.wait_for_queue_files(PACE));
        py.check_signals()?;
    }
    Ok(())
}
