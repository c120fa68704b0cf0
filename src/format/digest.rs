//! Digests that replace private values.

use sha2::{Digest, Sha256};

/// SHA-256 of a salt and a value, as hex. The salt's length is hashed first, so two pairs never
/// give the same input.
#[must_use]
pub fn salted_hex(salt: &[u8], value: &[u8]) -> String {
    let mut sum = Sha256::new();
    sum.update((salt.len() as u64).to_be_bytes());
    sum.update(salt);
    sum.update(value);
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[must_use]
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut sum = Sha256::new();
    for part in parts {
        sum.update(part);
    }
    sum.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sha_256() {
        let hex: String = sha256(&[b"a", b"bc"]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn salt_and_value_are_told_apart() {
        assert_eq!(salted_hex(b"a", b"b"), salted_hex(b"a", b"b"));
        assert_ne!(salted_hex(b"a", b"b"), salted_hex(b"ab", b""));
        assert_ne!(salted_hex(b"", b"b"), salted_hex(b"x", b"b"));
        assert_eq!(salted_hex(b"", b"").len(), 64);
    }
}
