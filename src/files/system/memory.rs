//! The machine's memory.

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Memory of the machine in bytes; 8 GiB if unknown.
#[must_use]
pub fn memory_bytes() -> u64 {
    #[cfg(target_os = "linux")]
    if let Ok(info) = nix::sys::sysinfo::sysinfo() {
        return info.ram_total();
    }
    8 << 30
}

/// Zeroed memory for a table with random access.
#[derive(Debug)]
pub struct Zeros(MmapMut);

impl Zeros {
    /// Allocates; pages are taken when first touched.
    pub fn new(len: usize) -> io::Result<Self> {
        MmapMut::map_anon(len).map(Self)
    }

    /// Takes all memory now, in large pages if possible: small ones fault twice (read, then write)
    /// and miss the TLB at nearly each access.
    pub fn take_all(&self) {
        #[cfg(target_os = "linux")]
        for advice in [memmap2::Advice::HugePage, memmap2::Advice::PopulateWrite] {
            // Without support, pages come when first touched.
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
