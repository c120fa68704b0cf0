//! Messages as Arrow streams.

pub(crate) mod array_functions;
pub(crate) mod log_scan;
pub(crate) mod scan;
