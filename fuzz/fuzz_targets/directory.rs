#![no_main]
#![allow(dead_code, reason = "one target of several")]

#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::directory(bytes));
