//! One diagnosis.

use crate::care::finding::{Code, Severity};

pub(super) const MOST_EVIDENCE: usize = 5;

/// A state of a store and its cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Its code.
    pub code: Code,
    /// Severity.
    pub severity: Severity,
    /// Evidence, a line each.
    pub evidence: Vec<String>,
    /// The shell command that cures it, if there is one.
    pub cure: Option<String>,
    /// Numbers of findings that follow from it, by code.
    pub follows: Vec<(Code, u64)>,
}
