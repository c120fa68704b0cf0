//! Possible disks after a power cut: of each page any of its states since the last flush, torn
//! at a sector too, of the names that were not made durable any, and of each file any of the times at
//! which it was changed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Entry, Image, NameChange, apply};
use super::inode::{Kept, PAGE, SECTOR};

/// Up to how many pages and names in doubt every combination is made.
const ENUMERATED: u32 = 12;

/// A moment at which the power may go.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) what: String,
    /// Messages before this number must be found.
    pub(crate) safe: usize,
    pub(crate) folders: BTreeMap<PathBuf, FolderCut>,
    pub(crate) files: BTreeMap<u64, FileCut>,
}

/// A folder then: names that are safe, and changes that may or may not have happened.
#[derive(Clone, Debug)]
pub(crate) struct FolderCut {
    pub(crate) durable: BTreeMap<OsString, Entry>,
    pub(crate) pending: Vec<NameChange>,
}

/// A file then: what is safe, then each state since, and so the times.
#[derive(Clone, Debug)]
pub(crate) struct FileCut {
    pub(crate) versions: Vec<Arc<[u8]>>,
    pub(crate) times: Vec<i64>,
}

/// Numbers that look random, the same ones from the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x9E37_79B9_7F4A_7C15)
    }

    /// A number below `end`, which is not 0 (SplitMix64).
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((bits ^ (bits >> 31)) % end as u64).unwrap()
    }
}

/// How one state of the disk is put together.
enum Choice<'a> {
    /// Bit by bit: each page and each name old or new.
    Bits(u64),
    /// By chance: any state since the flush, and for pages perhaps sector by sector. The first number
    /// says how many of ten come from the newest state, so that all mixtures come up.
    Dice { dice: &'a mut Dice, newest: usize, torn: bool },
}

/// Which times files have, whatever their bytes: one that is wrong breaks a seal, so that each for
/// itself would hardly ever leave one whole.
#[derive(Clone, Copy)]
enum Times {
    Safe,
    Newest,
    Mixed,
}

impl Choice<'_> {
    fn times(&mut self) -> Times {
        match self {
            Self::Bits(_) => [Times::Safe, Times::Newest][self.of(2)],
            Self::Dice { dice, .. } => [Times::Safe, Times::Newest, Times::Mixed][dice.below(3)],
        }
    }

    /// Which of `count` states it is, of which the first is safe and the last the newest.
    fn of(&mut self, count: usize) -> usize {
        if count <= 1 {
            return 0;
        }
        match self {
            Self::Bits(bits) => {
                let newest = *bits & 1 == 1;
                *bits >>= 1;
                if newest { count - 1 } else { 0 }
            }
            Self::Dice { dice, newest, .. } => {
                if dice.below(10) < *newest {
                    count - 1
                } else {
                    dice.below(count)
                }
            }
        }
    }

    fn is_torn(&mut self) -> bool {
        match self {
            Self::Bits(_) => false,
            Self::Dice { dice, torn, .. } => *torn && dice.below(3) == 0,
        }
    }
}

impl FileCut {
    /// The pages of which it is not known which state is on the disk, and the length if it is not.
    fn in_doubt(&self) -> u32 {
        let Some((safe, newer)) = self.versions.split_first() else { return 0 };
        let len = self.versions.iter().map(|version| version.len()).max().unwrap_or(0);
        let pages = (0..len.div_ceil(PAGE)).filter(|page| {
            let of = |version: &Arc<[u8]>| part(version, page * PAGE, PAGE).to_vec();
            newer.iter().any(|version| of(version) != of(safe))
        });
        let lengths = newer.iter().any(|version| version.len() != safe.len());
        u32::try_from(pages.count()).unwrap() + u32::from(lengths)
    }

    fn choose_time(&self, choice: &mut Choice<'_>, times: Times) -> i64 {
        let newest = self.times.len() - 1;
        self.times[match times {
            Times::Safe => 0,
            Times::Newest => newest,
            Times::Mixed => choice.of(newest + 1),
        }]
    }

    fn choose(&self, choice: &mut Choice<'_>) -> Arc<[u8]> {
        let [safe, newer @ ..] = &*self.versions else { return Arc::from([]) };
        if newer.is_empty() {
            return Arc::clone(safe);
        }
        let lengths_differ = newer.iter().any(|version| version.len() != safe.len());
        let count = self.versions.len();
        let len = self.versions[if lengths_differ { choice.of(count) } else { 0 }].len();
        let mut bytes = vec![0; len];
        for at in (0..len).step_by(PAGE) {
            let end = (at + PAGE).min(len);
            // The states of this page alone, each once.
            let mut states: Vec<&[u8]> = Vec::new();
            for version in &self.versions {
                let state = part(version, at, PAGE);
                if states.last().is_none_or(|last| *last != state) {
                    states.push(state);
                }
            }
            let step = if states.len() > 1 && choice.is_torn() { SECTOR } else { PAGE };
            for from in (at..end).step_by(step) {
                let state = part(states[choice.of(states.len())], from - at, step);
                let state = &state[..state.len().min(len - from)];
                bytes[from..from + state.len()].copy_from_slice(state);
            }
        }
        bytes.into()
    }
}

/// Up to `len` bytes from `from` on, fewer where there are no more.
fn part(bytes: &[u8], from: usize, len: usize) -> &[u8] {
    let from = from.min(bytes.len());
    &bytes[from..(from + len).min(bytes.len())]
}

impl Cut {
    /// How many pages, lengths and names are in doubt, and the times as one.
    pub(crate) fn in_doubt(&self) -> u32 {
        let names: usize = self.folders.values().map(|folder| folder.pending.len()).sum();
        let files: u32 = self.files.values().map(FileCut::in_doubt).sum();
        u32::try_from(names).unwrap() + files + u32::from(self.has_times_in_doubt())
    }

    fn has_times_in_doubt(&self) -> bool {
        self.files.values().any(|file| file.times.len() > 1)
    }

    /// Disks that this power cut may leave: every one of them, page by page, where no more than
    /// twelve things are in doubt; then as many torn and mixed ones as are wanted.
    pub(crate) fn images(&self, dice: &mut Dice, sampled: usize) -> Vec<Image> {
        let in_doubt = self.in_doubt();
        let mut images = Vec::new();
        if in_doubt <= ENUMERATED {
            for bits in 0..1_u64 << in_doubt {
                images.push(self.image(&mut Choice::Bits(bits)));
            }
        }
        if in_doubt > 0 {
            for number in 0..sampled {
                let newest = dice.below(11);
                let torn = number % 2 == 0;
                images.push(self.image(&mut Choice::Dice { dice, newest, torn }));
            }
        }
        images
    }

    /// Only what is safe.
    pub(crate) fn least(&self) -> Image {
        self.image(&mut Choice::Bits(0))
    }

    fn image(&self, choice: &mut Choice<'_>) -> Image {
        let mut image = Image::new();
        let times = if self.has_times_in_doubt() { choice.times() } else { Times::Safe };
        self.fill(Path::new("/"), choice, times, &mut image);
        image
    }

    fn fill(&self, path: &Path, choice: &mut Choice<'_>, times: Times, image: &mut Image) {
        // One that is being made, or was removed, is empty.
        let Some(folder) = self.folders.get(path) else { return };
        let mut names = folder.durable.clone();
        for change in &folder.pending {
            if choice.of(2) == 1 {
                apply(&mut names, change);
            }
        }
        for (name, entry) in names {
            let path = path.join(name);
            match entry {
                Entry::File(inode) => {
                    let file = &self.files[&inode.id];
                    let changed_ns = file.choose_time(choice, times);
                    let bytes = file.choose(choice);
                    image.insert(path, Some(Kept { bytes, inode: inode.id, changed_ns }));
                }
                Entry::Folder => {
                    image.insert(path.clone(), None);
                    self.fill(&path, choice, times, image);
                }
            }
        }
    }
}

/// Names and bytes alone.
pub(crate) fn contents(image: &Image) -> Vec<(&Path, Option<&[u8]>)> {
    image.iter().map(|(path, kept)| (&**path, kept.as_ref().map(|kept| &*kept.bytes))).collect()
}

/// The same number for the same disk: nobody asks when files were changed but of a store that is
/// sealed and was closed.
pub(crate) fn fingerprint(image: &Image, safe: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    let is_there = |name: &str| image.keys().any(|path| path.ends_with(name));
    match is_there("mqstore.seal") && !is_there("abort") {
        true => (safe, image).hash(&mut hasher),
        false => (safe, contents(image)).hash(&mut hasher),
    }
    hasher.finish()
}
