//! The checkpoint file: how far each part of the store is durable
//! (`org.apache.rocketmq.store.StoreCheckpoint`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::files::{Access, Storage, StorageFile};
use crate::format::checkpoint::{CHECKPOINT_LEN, CheckpointFields, FIELDS_LEN};

#[derive(Debug)]
pub struct StoreCheckpoint {
    path: PathBuf,
    file: Option<Arc<dyn StorageFile>>,
    on_disk: Option<CheckpointFields>,
    pub fields: CheckpointFields,
}

impl StoreCheckpoint {
    /// Reads the checkpoint without changing it; missing bytes count as zero.
    pub fn load(storage: &dyn Storage, path: &Path, access: Access) -> Result<Self> {
        let file = storage.open_if_there(path, access)?;
        let mut bytes = [0; FIELDS_LEN];
        let read = match &file {
            Some(file) => file.read_at(&mut bytes, 0).map_err(Error::io("read", path))?,
            None => 0,
        };
        let fields = CheckpointFields::decode_start(bytes.get(..read).unwrap_or_default());
        let on_disk = (read == bytes.len()).then_some(fields);
        Ok(Self { path: path.to_owned(), file, on_disk, fields })
    }

    /// Writes and flushes the fields; bytes behind them are kept.
    pub fn flush(&mut self, storage: &dyn Storage) -> Result<()> {
        if self.on_disk == Some(self.fields) {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let file = storage
                    .create(&self.path, CHECKPOINT_LEN as u64)
                    .map_err(Error::io("create", &self.path))?;
                let dir = self.path.parent().unwrap_or(&self.path);
                storage.sync_dir(dir).map_err(Error::flush(dir))?;
                file
            }
        };
        let file = self.file.insert(file);
        let len = file.stat().map_err(Error::io("stat", &self.path))?.len;
        if len < CHECKPOINT_LEN as u64 {
            file.set_len(CHECKPOINT_LEN as u64).map_err(Error::io("extend", &self.path))?;
        }
        file.write_at(&self.fields.encode(), 0).map_err(Error::io("write", &self.path))?;
        file.sync().map_err(Error::flush(&self.path))?;
        self.on_disk = Some(self.fields);
        Ok(())
    }

    /// Closes the file; it must not be written afterwards.
    pub fn close_file(&mut self) {
        self.file = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Os;

    #[test]
    fn ck01_and_ck02_fields_lie_where_they_must_and_the_rest_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let mut checkpoint = StoreCheckpoint::load(&Os, &path, Access::ReadWrite).unwrap();
        checkpoint.fields.physic_msg_timestamp_ms = 0xAABB;
        checkpoint.fields.logics_msg_timestamp_ms = 0xCCDD;
        checkpoint.fields.index_msg_timestamp_ms = 7;
        checkpoint.fields.master_flushed_offset = 8;
        checkpoint.fields.confirm_physical_offset = 9;
        checkpoint.fields.logics_physical_offset = 10;
        checkpoint.flush(&Os).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 4096);
        for (at, expected) in [(0, 43_707_i64), (8, 52_445), (16, 7), (24, 8), (32, 9), (40, 10)] {
            assert_eq!(bytes[at..at + 8], expected.to_be_bytes());
        }
        assert!(bytes[48..].iter().all(|&byte| byte == 0));
        bytes[100] = 77;
        std::fs::write(&path, &bytes).unwrap();
        let mut again = StoreCheckpoint::load(&Os, &path, Access::ReadWrite).unwrap();
        assert_eq!(again.fields, checkpoint.fields);
        assert_eq!(again.fields.min_timestamp_ms(), 40_707);
        again.fields.index_msg_timestamp_ms = 70;
        again.flush(&Os).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[100], 77);
    }

    #[test]
    fn ck08_a_missing_or_short_checkpoint_counts_as_zero() {
        let dir = tempfile::tempdir().unwrap();
        for len in [None, Some(0), Some(24)] {
            let path = dir.path().join(format!("{len:?}"));
            if let Some(len) = len {
                std::fs::write(&path, vec![0; len]).unwrap();
            }
            let mut checkpoint = StoreCheckpoint::load(&Os, &path, Access::ReadWrite).unwrap();
            assert_eq!(checkpoint.fields, CheckpointFields::default());
            checkpoint.flush(&Os).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
        }
    }
}
