//! Single queries: a message by its id, and how far log and queues have come.

use crate::error::{Error, Result, start_of};
use crate::format::message::host;
use crate::format::message::read_whole;
use crate::store::folder::seal::Seal;
use crate::store::read::missing_end::MissingFiles;

use crate::store::read::key_query::IndexType;
use crate::store::{KeyQuery, MessageStore};

impl MessageStore {
    /// Reads the message with an id: the store's address and an offset
    /// (`MessageDecoder#decodeMessageId`).
    pub fn get_by_id(&self, message_id: &str) -> Result<Box<[u8]>> {
        self.check_open()?;
        let shown = start_of(message_id);
        let nothing = |why: String| Error::MessageNotFound {
            what: format!("no message has the id {shown}{why}"),
        };
        let Some(id) = host::parse_message_id(message_id) else {
            let what = format!("{shown:?} is no message id: it has 32 or 56 hex digits");
            return Err(Error::MessageNotFound { what });
        };
        let record = self.get(id.physical_offset).map_err(|error| match error {
            Error::OffsetOutOfRange { .. } | Error::MessageNotFound { .. } => {
                nothing(format!(": {error}"))
            }
            other => other,
        })?;
        let there = read_whole(&record).ok_or_else(|| nothing(String::new()))?.store_host();
        if there != id.host {
            let named = id.host;
            return Err(nothing(format!(": it names {named}, and the message there {there}")));
        }
        Ok(record)
    }

    /// [`Self::get_by_id`], else the newest with that unique key.
    pub fn get_by_any_id(&self, message_id: &str) -> Result<Box<[u8]>> {
        let what = match self.get_by_id(message_id) {
            Err(Error::MessageNotFound { what }) if !message_id.is_empty() => what,
            other => return other,
        };
        let query = KeyQuery {
            topic: &[],
            key: message_id.as_bytes(),
            begin_ms: i64::MIN,
            end_ms: i64::MAX,
            max_messages: 1,
            exact: true,
        };
        let found = self.query_all(&query, IndexType::UniqueKey)?;
        let (complete, record) = (found.complete, found.records.into_iter().next());
        record.ok_or_else(|| {
            let nor = if complete { "nor has one" } else { "none that can be read has" };
            Error::MessageNotFound { what: format!("{what}; {nor} this unique key") }
        })
    }

    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        self.files.check_open()
    }

    #[must_use]
    pub(crate) fn index_is_usable(&self) -> bool {
        self.files.index.is_some()
    }

    /// Never in a writer.
    #[must_use]
    pub fn missing_end(&self) -> Option<&MissingFiles> {
        self.reader.missing_end.as_ref()
    }

    /// Whether no file changed since the store was closed: no queue and no entry is lost.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        Seal::is_whole(&self.files.paths)
    }

    /// Whether a reader left out a last record with zeros in topic or properties, as in an
    /// incomplete one.
    #[must_use]
    pub(crate) fn leaves_out_last(&self) -> bool {
        self.reader.leaves_out_last()
    }

    /// End of the log known to be durable. For a reader: the log's end if `abort` is missing, else
    /// the durable mark; if RocketMQ has written since, the last record older than the checkpoint's
    /// newest.
    pub fn flushed_offset(&self) -> Result<u64> {
        self.check_open()?;
        self.reader.flushed_offset()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use crate::store::{NewMessage, OpenMode};

    fn config() -> StoreConfig {
        let mut config = StoreConfig::default();
        config.set("mapped_file_size_commit_log", "1000").unwrap();
        config.set("max_hash_slot_num", "7").unwrap();
        config.set("max_index_num", "50").unwrap();
        config
    }

    #[test]
    fn an_id_names_address_and_place() {
        let dir = tempfile::tempdir().unwrap();
        let store = MessageStore::open(dir.path(), OpenMode::Create, config()).unwrap();
        let host = store.config().store_host;
        let at = store.append(&NewMessage::new(b"a", b"body")).unwrap();
        let id = host::message_id(&host, at.physical_offset);
        assert_eq!(store.get_by_id(&id).unwrap(), store.get(0).unwrap());
        assert_eq!(store.get_by_id(&id.to_lowercase()).unwrap(), store.get(0).unwrap());
        for other in [
            "no id".to_owned(),
            host::message_id(&host.with_port(1), at.physical_offset),
            host::message_id(&host, 1),
            host::message_id(&host, 1 << 40),
            host::message_id(&host, -1),
        ] {
            let answer = store.get_by_id(&other);
            assert!(matches!(answer, Err(Error::MessageNotFound { .. })), "{other}: {answer:?}");
        }
        store.close().unwrap();
        assert!(matches!(store.get_by_id(&id), Err(Error::Closed)));
    }

    #[test]
    fn beside_a_writer_only_what_the_checkpoint_knows_counts_as_flushed() {
        let dir = tempfile::tempdir().unwrap();
        let store = MessageStore::open(dir.path(), OpenMode::Create, config()).unwrap();
        let append = |time: i64| {
            let message = NewMessage {
                store_timestamp_ms: Some(time),
                ..NewMessage::new(b"a", &[b'x'; 100])
            };
            store.append(&message).unwrap()
        };
        for time in 1..20 {
            append(1_000 * time);
        }
        let newest = append(20_000);
        store.flush().unwrap();
        append(20_000);
        for time in 21..=40 {
            append(1_000 * time);
        }
        let reader = MessageStore::open(dir.path(), OpenMode::Read, config()).unwrap();
        let flushed = reader.flushed_offset().unwrap();
        // More messages of the newest time may exist than were flushed.
        assert_eq!(i64::try_from(flushed), Ok(newest.physical_offset));
        assert!(reader.end_offset() > flushed);
        store.close().unwrap();
        reader.refresh().unwrap();
        assert_eq!(reader.flushed_offset().unwrap(), reader.end_offset());
        reader.close().unwrap();
        assert!(matches!(reader.flushed_offset(), Err(Error::Closed)));
    }
}
