//! Job files. The parser is the command's own, included without the rest of it: DataFusion is not needed to read a file.
#![no_main]
#![allow(dead_code, unused_imports, reason = "the command uses more of these modules")]

#[path = "../../crates/lakemark-cli/src/args.rs"]
mod args;
#[path = "../../crates/lakemark-cli/src/config/mod.rs"]
mod config;
#[path = "../../crates/lakemark-cli/src/config/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(init: lakemark_fuzz::prepare(), |bytes: &[u8]| {
    lakemark::fuzzing::check_memory(bytes, || fuzzed::job_files(bytes));
});
