//! The machine's memory.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// How much memory the machine has, in bytes; 8 GiB where the system does not tell.
#[must_use]
pub fn memory_bytes() -> u64 {
    #[cfg(target_os = "linux")]
    if let Ok(info) = nix::sys::sysinfo::sysinfo() {
        return info.ram_total();
    }
    8 << 30
}

/// Zeros of its own, for a table that is visited at random.
#[derive(Debug)]
pub struct Zeros(MmapMut);

impl Zeros {
    /// So many bytes, of which pages are taken as they are visited.
    ///
    /// # Errors
    /// The system's, when there is no memory.
    pub fn new(len: usize) -> io::Result<Self> {
        MmapMut::map_anon(len).map(Self)
    }

    /// Takes all of the memory now, in large pages where the system has them: of small ones each would
    /// be brought in twice, to be read and then to be written, and nearly each visit would make the
    /// processor look up where its page is.
    pub fn take_all(&self) {
        #[cfg(target_os = "linux")]
        for advice in [memmap2::Advice::HugePage, memmap2::Advice::PopulateWrite] {
            // Where the system knows neither, pages come as they are visited.
            let _ = self.0.advise(advice);
        }
    }
}

impl Deref for Zeros {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Zeros {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_zeros_until_they_are_written() {
        let mut zeros = Zeros::new(3 << 20).unwrap();
        zeros.take_all();
        assert!(zeros.len() == 3 << 20 && zeros.iter().all(|byte| *byte == 0));
        zeros[(3 << 20) - 1] = 7;
        assert_eq!(zeros.last(), Some(&7));
    }

    #[test]
    fn a_machine_has_memory() {
        assert!(super::memory_bytes() >= 1 << 26);
    }
}
