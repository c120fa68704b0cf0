//! The machine's memory.

/// How much memory the machine has, in bytes; 8 GiB where the system does not tell.
#[must_use]
pub fn memory_bytes() -> u64 {
    #[cfg(target_os = "linux")]
    if let Ok(info) = nix::sys::sysinfo::sysinfo() {
        return info.ram_total();
    }
    8 << 30
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_machine_has_memory() {
        assert!(super::memory_bytes() >= 1 << 26);
    }
}
