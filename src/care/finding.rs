//! Findings: stable codes, and the list of what was found.

use crate::locks::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::named;

named! {
    /// Severity of a finding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Severity {
        /// Damage.
        Error = "error",
        /// A risk of loss, or of misleading RocketMQ.
        Warning = "warning",
        /// Information, no fault.
        Info = "info",
    }
}

macro_rules! codes {
    ($($variant:ident $name:literal $worst:ident $(| $other:ident)* $title:literal $fix:tt)*) => {
        named! {
            /// Kind of a finding, sorted by name. A code's name and meaning never change.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[non_exhaustive]
            pub enum Code {
                $(#[doc = concat!("`", $name, "`: ", $title, ".")] $variant = $name,)*
            }
        }

        impl Code {
            /// Severity, unless a check reports it with a lower one.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$worst,)* }
            }

            /// Severities that it can be reported with, the highest first.
            #[must_use]
            pub const fn severities(self) -> &'static [Severity] {
                match self {
                    $(Self::$variant => &[Severity::$worst $(, Severity::$other)*],)*
                }
            }

            /// Title.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// Remedy.
            #[must_use]
            pub const fn fix(self) -> &'static str {
                match self { $(Self::$variant => $fix,)* }
            }
        }
    };
}

// Cures of several codes.
const REBUILD_QUEUES: &str = "`mqstore rebuild STORE --what consumequeue -t TOPIC --apply`: the queues are made again from the log";
const REBUILD_INDEX: &str =
    "`mqstore rebuild STORE --what index --apply`: the index is made again from the log";
const SALVAGE: &str = "`mqstore salvage STORE --out OUT` copies out what is whole; `mqstore recover STORE --apply --drop-beyond` ends the log there";

codes! {
    BackupObject "MQ-BK-01" Error "an object of a backup is missing, or is not the one that was stored"
        "put the object back from a copy of the backup; without one delete it, and `mqstore sync STORE TARGET --verify` copies again what the store still has; snapshots that need no damaged object stay readable"
    BackupDocument "MQ-BK-02" Error "a snapshot of a backup cannot be read"
        "put the document back from a copy of the backup, or delete it; other snapshots stay readable, and `mqstore sync STORE TARGET` goes on from the newest of them"
    ConfigUnreadable "MQ-CFG-01" Error | Warning "neither a configuration file nor its backup can be read"
        "put back a copy of the file; without one make it anew: topics with RocketMQ's `mqadmin updateTopic`, subscription groups with `mqadmin updateSubGroup`, offsets of consumers with `mqstore groups STORE -g GROUP --reset-to earliest --apply`; config/delayOffset.json is moved aside, and levels begin anew"
    ConfigBackup "MQ-CFG-02" Error | Warning "of a configuration file only the backup has content that can be read"
        "copy the backup over the file before that is lost too; a broker takes the backup, but not in place of an empty table"
    ConfigNoBackup "MQ-CFG-03" Info "the backup of a configuration file cannot be read"
        "none needed: the next change of the file makes it anew"
    ConfigTopic "MQ-CFG-04" Warning "a topic with queues is not in the table of topics, so no consumer gets it"
        "`mqstore rebuild STORE --what topics -t TOPIC --apply` enters it with the queues that it has; or let it be, if the topic was deleted"
    ConfigQueues "MQ-CFG-05" Warning "the table of topics has fewer queues than there are, so no consumer gets the rest"
        "raise the number of queues with RocketMQ's `mqadmin updateTopic`"
    ConfigKind "MQ-CFG-06" Error "the table of topics names another kind of queue than there is"
        "correct `queue.type` of the topic in config/topics.json; RocketMQ does not start like this"
    ConfigTopicsGone "MQ-CFG-07" Error | Info "the table of topics is gone, so no consumer gets anything"
        "put back a copy of config/topics.json; else `mqstore rebuild STORE --what topics --apply` makes it from the queues and the log"
    ConfigSize "MQ-CFG-08" Error "the settings have another file size than the files, so RocketMQ does not start"
        "give the broker.conf the line that is named; the files stay as they are"
    ConfigChecksum "MQ-CFG-09" Error "forceVerifyPropCRC demands a checksum that messages lack, so RocketMQ's next start may drop them"
        "take forceVerifyPropCRC=true out of the broker.conf before the broker is started; nothing in the store is damaged"
    CheckpointTime "MQ-CK-01" Warning "the checkpoint has a time that cannot be"
        "`mqstore recover STORE --apply` sets it to the newest message's; RocketMQ keeps a time from the future, and then trusts an index that was never flushed"
    CheckpointConfirm "MQ-CK-02" Warning "the checkpoint confirms a place that the log does not reach"
        "none needed: it is ignored, and `mqstore recover STORE --apply` puts it right"
    CheckpointFile "MQ-CK-03" Info "the checkpoint is missing or too short"
        "none needed: what is missing counts as zero, and the next writer makes it anew"
    CheckpointLogics "MQ-CK-04" Warning "the checkpoint calls queue entries flushed that the log does not reach"
        "the next opening for writing puts it right; until then RocketMQ 5.5 builds too few queue entries after a crash: `mqstore recover STORE --apply`"
    QueueMissing "MQ-CQ-01" Error | Info "messages have no entry in their queue" REBUILD_QUEUES
    QueueNowhere "MQ-CQ-02" Error | Warning "a queue entry leads to no message" REBUILD_QUEUES
    QueueOther "MQ-CQ-03" Error "a queue entry leads to another message" REBUILD_QUEUES
    QueueSize "MQ-CQ-04" Error "a queue entry has another size than its message" REBUILD_QUEUES
    QueueTags "MQ-CQ-05" Error "a queue entry has another tags code than its message" REBUILD_QUEUES
    QueueOrder "MQ-CQ-06" Error "queue entries are out of order" REBUILD_QUEUES
    QueueHole "MQ-CQ-07" Error "a queue has entries behind empty ones, which no reader finds" REBUILD_QUEUES
    QueueTail "MQ-CQ-08" Info "the newest messages are not in their queue yet"
        "none needed: a running broker adds them, and so does `mqstore recover STORE --apply` after a crash"
    QueueBlank "MQ-CQ-09" Warning "a queue leaves out numbers in the middle"
        "none: the messages of these numbers were lost before; one that is in the log has a finding of its own"
    BatchRange "MQ-CQ-11" Error "a batch's queue entry stands for other messages than its record" REBUILD_QUEUES
    BatchNumbers "MQ-CQ-12" Error | Warning "the numbers of a queue of batches leave a gap or overlap"
        "none, if the messages of these numbers were lost before; else `mqstore rebuild STORE --what consumequeue -t TOPIC --apply`"
    BatchTime "MQ-CQ-13" Error "a batch's queue entry has another time than its record" REBUILD_QUEUES
    ExtAddress "MQ-CQ-14" Error "a queue entry leads to no unit of its extension"
        "`mqstore rebuild STORE --what consumequeue -t TOPIC --apply`: until then a filter lets the message pass"
    ExtUnit "MQ-CQ-15" Error "bytes of a queue's extension that are no unit"
        "`mqstore rebuild STORE --what consumequeue -t TOPIC --apply`: until then a filter lets the messages pass whose units are behind"
    ExtTags "MQ-CQ-16" Error "a unit of a queue's extension is another message's" REBUILD_QUEUES
    QueueShifted "MQ-CQ-17" Warning "queue entries lie before the numbers of their messages"
        "none in place: RocketMQ appended where its numbers left a gap, and reads by entry; a consumer commits its last message's own number, and after a restart it may pass over as many messages"
    Ledger "MQ-DL-01" Error "the log is DLedger's, with a head around each record"
        "none needed to run it with DLedger; `mqstore salvage STORE --out OUT` of the folder that is named copies its messages into a new store"
    DocUndispatched "MQ-DOC-01" Error | Warning "messages are in the log and not in their queues, so that consumers never get them" REBUILD_QUEUES
    DocIndexDoomed "MQ-DOC-02" Warning "the next start of RocketMQ destroys index files that are newer than the checkpoint"
        "`mqstore recover STORE --apply`: the store is closed cleanly, and the files stay"
    DocIndexLacks "MQ-DOC-03" Error | Warning "the index lacks keys of messages, so that key queries of RocketMQ do not find them" REBUILD_INDEX
    DocQueueOrder "MQ-DOC-04" Error "a queue has gaps, or its entries are out of order" REBUILD_QUEUES
    DocQueueWrong "MQ-DOC-05" Error | Warning "entries of a queue lead to the wrong bytes" REBUILD_QUEUES
    DocEmptyLast "MQ-DOC-06" Error | Info "the last file of a queue is empty: RocketMQ does not start, or counts an entry that is none" REBUILD_QUEUES
    DocSlowStart "MQ-DOC-07" Warning "the store was not closed, and the next start of RocketMQ reads much of it again"
        "`mqstore recover STORE --apply`: it recovers beforehand, while no broker waits for it"
    DocKeyCollision "MQ-DOC-08" Info "the index cannot tell some keys apart, so that key queries of RocketMQ give messages of others"
        "`mqstore query STORE -t TOPIC -k KEY`: key and topic of each message are compared"
    DocClockBack "MQ-DOC-09" Info "the clock went back, so that key queries of RocketMQ with times leave messages out"
        "`mqstore query STORE -t TOPIC -k KEY`: without times nothing is left out"
    DocTimeLookup "MQ-DOC-10" Info "times of a queue tie at a file's edge or step back, so that lookups by time differ between versions of RocketMQ"
        "`mqstore at STORE -t TOPIC -q QUEUE TIME`: the first message of that time or a later one, whatever the files"
    DocTopicDeleted "MQ-DOC-11" Info "messages of a deleted topic are still in the log, and a rebuild of all queues brings it back"
        "`mqstore rebuild STORE --what consumequeue -t TOPIC --apply`: only the queues of the topics that are named"
    DocRocksDb "MQ-DOC-12" Info "the queues are in RocksDB, where a broker that keeps them in files does not look"
        "`mqstore rebuild STORE --what consumequeue --apply`: files of queues are made from the log"
    DocEndMissing "MQ-DOC-13" Error "files at the end of the log are missing"
        "put the files back before anything else; only if they are gone for good, `mqstore recover STORE --apply --drop-beyond` cuts queues and index to the log that is left"
    DocMisplaced "MQ-DOC-14" Error "files of the log are in the wrong place, by the records in them"
        "rename them with `mv`, in the order that is printed; nothing in them is damaged"
    DocQuarantine "MQ-DOC-15" Warning "a repair took whole messages out of the log, and they are still aside"
        "`mqstore recover STORE --quarantine --apply` puts back those that the log does not have, at its end; without --apply it lists them"
    DocBeginning "MQ-DOC-16" Warning | Info "the log begins behind messages that queues know"
        "put the files of the log back if there is a copy; where retention deleted them, none needed: readers begin with the first message that is there"
    DocCopy "MQ-DOC-17" Error | Warning "queues or index know messages behind the log's end, as in a copy that is not finished or was made of a running broker"
        "let the copy finish, or make it again from the stopped broker; where the original is gone, `mqstore recover STORE --apply` cuts the queues to the log, with `--drop-beyond` if it refuses"
    DocTwoBrokers "MQ-DOC-18" Error "log, queues and index do not fit together, as in files of two brokers"
        "put log, queues, index, checkpoint and config of one broker together; where the log is the right one, `mqstore rebuild STORE --apply` makes queues and index from it"
    DocEpochEnded "MQ-DOC-19" Error "messages of an ended epoch lie behind the begin of the new one, and a rebuild brings them back"
        "`mqstore recover STORE --apply --drop-beyond` ends the log where the new epoch begins and keeps them in the quarantine"
    FileLength "MQ-FS-01" Error "a file has the wrong length"
        "of the log: put the whole file back, else `mqstore salvage STORE --out OUT` copies out what is whole; `mqstore rebuild STORE --what consumequeue -t TOPIC --apply` makes a queue again"
    FileGap "MQ-FS-02" Error "files leave a gap, overlap, or do not begin where they must"
        "of the log: put the missing file back, else `mqstore salvage STORE --out OUT` copies out what is there; `mqstore rebuild STORE --what consumequeue -t TOPIC --apply` makes a queue again"
    StrayName "MQ-FS-03" Warning "a name that does not belong there"
        "move it away: in the log's folder it keeps RocketMQ from starting; a file of the log that lost its name belongs back under it"
    NoRegularFile "MQ-FS-04" Error | Warning "a link, pipe or device where a file or folder belongs"
        "replace it by what it should be; it is never opened"
    Unreadable "MQ-FS-05" Error "the system cannot read it"
        "look at the disk and at the permissions"
    EmptyFile "MQ-FS-06" Error | Info "an empty file"
        "`mqstore recover STORE --apply` removes one at the end of the log; `mqstore rebuild STORE --what consumequeue -t TOPIC --apply` makes a queue again"
    NotClosed "MQ-FS-07" Info "the store was not closed"
        "`mqstore recover STORE --apply`, or the next opening for writing"
    InUse "MQ-FS-08" Info "a process writes to the store"
        "none needed; look again when it has stopped to see what only a stopped store shows"
    QueueFileEmpty "MQ-FS-09" Error "the last file of a queue has no entry: RocketMQ does not start, or counts one that is none" REBUILD_QUEUES
    FileTwin "MQ-FS-10" Error "two folders of the log have a file of one name"
        "where one of them lacks no byte of the other, `mv` moves the other out of the folder; else nothing says which is the log's: put away the wrong one, or `mqstore salvage STORE --out OUT` copies the messages of both"
    NotWritable "MQ-FS-11" Error "a broker that runs as this user may not write it, and does not start"
        "give it back to the store's owner, as the command does that is printed; root can run it"
    IndexUnusable "MQ-IX-01" Error | Info "an index file cannot be used" REBUILD_INDEX
    IndexHeader "MQ-IX-02" Error "the header of an index file contradicts its entries" REBUILD_INDEX
    IndexSlot "MQ-IX-03" Error "an index slot names the wrong entry, so keys are not found" REBUILD_INDEX
    IndexChain "MQ-IX-04" Error "an index chain is broken, so keys are not found" REBUILD_INDEX
    IndexNowhere "MQ-IX-05" Warning "an index entry leads to no message" REBUILD_INDEX
    IndexOther "MQ-IX-06" Error "an index entry leads to a message without its key" REBUILD_INDEX
    IndexMissing "MQ-IX-07" Error | Warning "keys of messages are not in the index" REBUILD_INDEX
    IndexTail "MQ-IX-08" Warning | Info "the index does not reach the newest messages"
        "`mqstore recover STORE --apply`, or the next opening for writing, adds them"
    IndexEntry "MQ-IX-09" Error "an index entry holds what cannot be" REBUILD_INDEX
    IndexTime "MQ-IX-10" Warning "an index entry has another time than its message" REBUILD_INDEX
    IndexLayout "MQ-IX-11" Warning | Info "how many slots and entries the index files have cannot be told"
        "`mqstore rebuild STORE --what index --apply --config FILE`, where FILE is the broker's broker.conf, or one with maxHashSlotNum and maxIndexNum as it has them (5000000 and 20000000 where its own names none); a sound index needs only that the file is given to each command"
    IndexTags "MQ-IX-12" Info "tags of messages have no entry in an index that has such entries, so RocketMQ's queries by tag do not find them"
        "none needed: RocketMQ 5.3 wrote that stretch; `mqstore rebuild STORE --what index --apply` gives it the entries"
    LogFrame "MQ-LOG-01" Error "bytes that are no message" SALVAGE
    LogBody "MQ-LOG-02" Error "a message's body is not the one that was stored"
        "`mqstore salvage STORE --out OUT` copies out all the others; this body is lost unless a replica has it"
    LogProperties "MQ-LOG-03" Error "a message is not the one that was stored, by its property checksum"
        "`mqstore salvage STORE --out OUT` copies out all the others; this message is lost unless a replica has it"
    LogPlace "MQ-LOG-04" Error "a message names another place than the one where it lies"
        "`mqstore salvage STORE --out OUT` copies it out; `mqstore recover STORE --apply --drop-beyond` ends the log there"
    LogBlank "MQ-LOG-05" Error "a blank does not end where its file does" SALVAGE
    LogHole "MQ-LOG-06" Error "zeros where a message should be" SALVAGE
    LogRemains "MQ-LOG-07" Warning "remains of an earlier log lie behind the end"
        "`mqstore recover STORE --apply` keeps them aside and zeroes them; RocketMQ may take them for messages again"
    LogTail "MQ-LOG-08" Warning | Info "the log breaks off in what was never flushed"
        "`mqstore recover STORE --apply` ends the log there; with whole messages behind it `mqstore salvage STORE --out OUT` keeps them"
    LogNumber "MQ-LOG-09" Warning | Info "a message has a queue or a number that no queue can have"
        "none: it can be read by its place, and by key, but from no queue"
    LogTwice "MQ-LOG-10" Warning "two messages have the same number in one queue"
        "`mqstore salvage STORE --out OUT` numbers them anew; a rebuild takes one of them out of the queue, where it can be read by its place and by key only"
    LogTopic "MQ-LOG-11" Warning "a topic that cannot name a folder"
        "none: its messages can be read by place and by key, but from no queue"
    LogBatch "MQ-LOG-12" Warning "a batch does not hold the messages that it counts"
        "none: the record is read as it is, and its queue has it as one message"
    LogDelay "MQ-LOG-13" Warning "a message's delay level is no number"
        "none: it counts as without a delay, and a broker delivers it no later than others"
    LogTime "MQ-LOG-14" Warning | Info "a message's store time is far outside of its neighbours'"
        "none in place: the message is found by place, by queue and by key; export it, give it a time, and import it into a new store"
    LogShort "MQ-LOG-15" Error "the log ends before what was durable"
        "put the missing files back; if they are gone for good, `mqstore recover STORE --apply --drop-beyond` goes on where the log ends now"
    LogMark "MQ-LOG-16" Warning "the durable mark cannot be read"
        "none needed: the checkpoint tells what was flushed, and the next writer makes the mark anew"
    LogEmpty "MQ-LOG-17" Error "the log has no file, and something else says that there was one"
        "mount the disk of the log, or put its files back; only a new store has none"
    LogDispatch "MQ-LOG-18" Error "RocketMQ's dispatch ends at a message for good"
        "none in place: start the broker with `enableMultiDispatch=false`, or only after a clean close with complete queues"
    LogPacked "MQ-LOG-19" Info "bodies that are marked as compressed cannot be decompressed"
        "none: the producer sent them so; they can be read as they are, or left out as damage"
    OffsetBeyond "MQ-OFF-01" Warning | Info "a consumer's offset lies beyond the end of its queue"
        "`mqstore recover STORE --apply` sets it back to the end; else what comes next is left out"
    OffsetBefore "MQ-OFF-02" Info "a consumer's offset lies before the first message of its queue: what it had not read was deleted"
        "none needed: the consumer goes on with the first that is there"
    OffsetNowhere "MQ-OFF-03" Warning "a consumer's offset is of a queue that does not exist"
        "none needed where the topic was deleted; where its messages are in the log, they lack their queue, which is a finding of its own"
    OffsetNegative "MQ-OFF-04" Warning "a consumer's offset is negative, so it begins anew by its own rule"
        "`mqstore groups STORE --reset-to earliest --only-negative --apply` gives such a group a place; --reset-to takes latest or a time too"
    OffsetsGone "MQ-OFF-05" Error "the offsets of consumer groups are gone: each begins anew, and skips or repeats messages"
        "put back config/consumerOffset.json or its backup; else `mqstore groups STORE --reset-to earliest --apply`, with --reset-to latest or a time where that repeats too much"
    DelaysGone "MQ-OFF-06" Info "the offsets of delay levels are gone, so RocketMQ delivers delayed messages again"
        "put back config/delayOffset.json or its backup; without one a start delivers again what it had delivered"
    DelayOffset "MQ-OFF-07" Warning | Info "the offset of a delay level lies outside of its queue"
        "none by a command: put back a copy of config/delayOffset.json; RocketMQ's start sets a negative offset to the first message, so that all come again, and one beyond the end to the end, so that what waits never comes"
    RocksUnreadable "MQ-RDB-01" Error | Warning "a RocksDB database cannot be read"
        "`mqstore convert STORE --queues rocksdb --apply`: the rows of queues are made again from the log; put back a copy of any other database"
    RocksRow "MQ-RDB-02" Error | Warning "a row in RocksDB contradicts its message"
        "`mqstore convert STORE --queues rocksdb --apply`: the rows are made again from the log"
    RocksMissing "MQ-RDB-03" Error | Info "messages have no row in RocksDB"
        "`mqstore convert STORE --queues rocksdb --apply`: the rows are made again from the log"
    RocksTail "MQ-RDB-04" Info "the newest messages have no row in RocksDB yet"
        "none needed: a running broker has the rows in memory; after a crash, `mqstore convert STORE --queues rocksdb --apply` writes all of them, and a start of RocketMQ those of the last files"
    RocksUnknown "MQ-RDB-05" Info "a RocksDB database is not looked at, as its package is not installed"
        "install `rocksdict`, as with `mqstore[rocksdb]`, and verify again"
    Timer "MQ-TM-01" Error | Warning "files of the timer are wrong, so a broker does not start, or timer messages are never delivered, or once more"
        "none here: these files are not repaired; put back copies of config/timercheck, timerwheel and timerlog of one time, or stop the broker and move all three away: the whole queue is read again"
}

impl Code {
    #[must_use]
    pub(crate) fn at(self, severity: Severity) -> Graded {
        debug_assert!(self.severities().contains(&severity), "{self}: {severity:?}");
        Graded(self, severity)
    }
}

/// A code and its severity in one finding.
#[derive(Clone, Copy, Debug)]
pub struct Graded(pub(crate) Code, pub(crate) Severity);

impl From<Code> for Graded {
    fn from(code: Code) -> Self {
        Self(code, code.severity())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file or folder, relative to the root if inside.
    pub path: PathBuf,
    /// The byte in it; `None` for the whole file.
    pub offset: Option<u64>,
    /// Its code.
    pub code: Code,
    /// Severity.
    pub severity: Severity,
    /// Expected.
    pub expected: String,
    /// Found.
    pub found: String,
    /// Physical offset of the first of the messages that queues lack, if it is about such.
    pub first_missing: Option<u64>,
}

impl Finding {
    /// A finding about messages that queues lack, the first of them at `first_missing`.
    #[must_use]
    pub fn of_missing(
        code: impl Into<Graded>,
        path: &Path,
        first_missing: Option<u64>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        let Graded(code, severity) = code.into();
        let (path, expected, found) = (path.to_owned(), expected.into(), found.into());
        Self { path, offset: None, code, severity, expected, found, first_missing }
    }

    /// One line with everything.
    #[must_use]
    pub fn message(&self) -> String {
        let place = match self.offset {
            Some(offset) => format!("{} byte {offset}", self.path.display()),
            None => self.path.display().to_string(),
        };
        let Self { code, expected, found, .. } = self;
        format!("{place}: {}: expected {expected}, found {found}", code.title())
    }
}

/// Findings, all counted and listed up to a limit.
///
/// Beyond the limit the first of each code are kept, whatever the order of threads.
#[derive(Debug)]
pub struct Findings {
    root: PathBuf,
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    counts: BTreeMap<Code, u64>,
    by_code: BTreeMap<Code, BTreeSet<Finding>>,
    total: usize,
    wrong: bool,
}

impl Findings {
    /// An empty list for the store at `root`.
    #[must_use]
    pub fn new(root: &Path, limit: usize) -> Self {
        Self { root: root.to_owned(), limit, kept: Mutex::default() }
    }

    /// Adds a finding; its path becomes relative to the root.
    pub fn add(
        &self,
        code: impl Into<Graded>,
        path: &Path,
        offset: Option<u64>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        self.insert(Finding { offset, ..Finding::of_missing(code, path, None, expected, found) });
    }

    /// Adds a finding as it is, but for its path, which becomes relative to the root.
    pub fn insert(&self, mut finding: Finding) {
        let below = finding.path.strip_prefix(&self.root).unwrap_or(&finding.path);
        let is_root = below.as_os_str().is_empty();
        finding.path = if is_root { PathBuf::from(".") } else { below.to_owned() };
        let (code, severity) = (finding.code, finding.severity);
        let mut kept = self.kept.lock();
        kept.wrong |= severity != Severity::Info;
        if kept.by_code.entry(code).or_default().insert(finding) {
            *kept.counts.entry(code).or_default() += 1;
            kept.total += 1;
        }
        if kept.total > self.limit {
            kept.drop_one();
        }
    }

    /// The sorted list, totals by code, and whether anything is wrong.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Finding>, BTreeMap<Code, u64>, bool) {
        let kept = self.kept.into_inner();
        let mut list: Vec<_> = kept.by_code.into_values().flatten().collect();
        list.sort();
        (list, kept.counts, kept.wrong)
    }
}

impl Kept {
    fn drop_one(&mut self) {
        let most = self.by_code.iter_mut().max_by_key(|(_, findings)| findings.len());
        if let Some((_, findings)) = most
            && findings.pop_last().is_some()
        {
            self.total -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_each_used_once() {
        let names: Vec<_> = Code::EACH.iter().map(|code| code.name()).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for code in Code::EACH {
            assert!(!code.title().is_empty() && !code.fix().is_empty(), "{code}");
            assert!(code.severities().is_sorted_by(|a, b| a < b), "{code}: the worst comes first");
        }
    }

    #[test]
    fn past_the_limit_every_code_keeps_its_first_findings() {
        let orders: [&[u64]; 2] = [&[5, 1, 4, 2, 3], &[1, 2, 3, 4, 5]];
        for order in orders {
            let findings = Findings::new(Path::new("/s"), 4);
            for &offset in order {
                let path = Path::new("/s/commitlog/a");
                findings.add(Code::LogFrame, path, Some(offset), "a", "b");
            }
            findings.add(Code::NotClosed, Path::new("/s"), None, "a", "b");
            let (list, counts, wrong) = findings.into_parts();
            assert_eq!(
                list.iter().map(|f| f.offset).collect::<Vec<_>>(),
                [None, Some(1), Some(2), Some(3)]
            );
            assert_eq!(list[0].path, Path::new("."));
            assert_eq!(counts, BTreeMap::from([(Code::LogFrame, 5), (Code::NotClosed, 1)]));
            assert!(wrong);
        }
    }

    #[test]
    fn a_message_says_where_and_what() {
        let findings = Findings::new(Path::new("/s"), 1);
        let path = Path::new("/s/commitlog/0");
        findings.add(Code::LogFrame, path, Some(7), "a record", "zeros");
        let (list, ..) = findings.into_parts();
        assert_eq!(
            list[0].message(),
            "commitlog/0 byte 7: bytes that are no message: expected a record, found zeros"
        );
    }
}
