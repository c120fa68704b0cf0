//! Releases of RocketMQ, as far as their files differ.

use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::named;

named! {
    /// A release line of RocketMQ; a later one is greater.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Release {
        V5_3 = "5.3",
        /// 5.4: the index has tag entries; an item of a batch keeps its own properties only.
        V5_4 = "5.4",
        /// 5.5: the checkpoint also says up to which record the queues are flushed.
        V5_5 = "5.5",
    }
}

impl Release {
    /// Whether the index has an entry for each message's tags (`IndexService#buildIndex`).
    #[must_use]
    pub fn has_tag_entries(self) -> bool {
        self >= Self::V5_4
    }

    /// Whether the checkpoint holds `logicsPhysicalOffset` (`StoreCheckpoint`).
    #[must_use]
    pub fn has_logics_offset(self) -> bool {
        self >= Self::V5_5
    }
}

impl FromStr for Release {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::by_name(text).ok_or(())
    }
}

impl Serialize for Release {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_later_releases_are_greater() {
        assert!(Release::EACH.is_sorted());
        for release in Release::EACH {
            assert_eq!(release.name().parse(), Ok(*release));
        }
        assert_eq!("5.3.3".parse::<Release>(), Err(()));
    }
}
